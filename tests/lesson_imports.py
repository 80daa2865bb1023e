"""Runs the import statements of all lessons: `warm_kernels.py` forks kernels from a process that has imported this module."""

import ast
import gc
import json
import os
from pathlib import Path

os.environ["MPLBACKEND"] = (
    "module://matplotlib_inline.backend_inline"  # which a kernel sets before matplotlib is imported
)

import transformers.models.llama.modeling_llama  # noqa: F401 - with the first policy

for lesson in sorted((Path(__file__).parent.parent / "notebooks").rglob("[0-9]*.ipynb")):
    for cell in json.loads(lesson.read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] == "code":
            code = "".join(line for line in cell["source"] if not line.startswith(("%", "!")))
            imports = [node for node in ast.parse(code).body if isinstance(node, ast.Import | ast.ImportFrom)]
            exec(compile(ast.Module(imports, []), str(lesson), "exec"), {})
gc.freeze()  # what a search for garbage walks through would be copied into each kernel
