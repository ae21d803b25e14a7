"""The task readers, one file per family of data; importing this package registers them, calling it lists them."""

from clearhead.registry import answers
from clearhead.task import TASKS
from clearhead.tasks import eraser, hugging_face, pictures, squad, table
from clearhead.tasks.reading import read_task

__all__ = ["eraser", "hugging_face", "pictures", "read_task", "squad", "table"]

answers(__name__, lambda: TASKS)
