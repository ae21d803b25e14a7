"""How far an explanation can be trusted: checks, error bars, agreement, and the choice of a method."""
