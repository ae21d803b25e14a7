"""Views work on explanations alone: they need neither torch nor a model."""

import subprocess
import sys

VIEWS = (
    *("annotations", "answers", "blocks", "heatmap", "html", "json_record"),
    *("line_chart", "markdown", "notebook", "static_image", "terminal"),
)


def test_views_do_not_import_torch():
    modules = ", ".join(f"clearhead.views.{name}" for name in VIEWS)
    code = f"import sys, {modules}; print('torch' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "False"
