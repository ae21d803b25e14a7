"""Web page and JSON API: explain inputs with the models that the server was started with."""
