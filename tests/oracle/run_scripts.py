"""Runs scripts of this folder one after the other. Each gets a process of its own, a fork of this one, which has imported what they import:
transformers and its like take seconds to import.

    python run_scripts.py

Three lines tell of a script: its file's name, its arguments as a shell would read them, and the file for what it prints. The answer
is a line with its exit code.
"""

import ast
import os
import pathlib
import runpy
import shlex
import sys
import traceback

HERE = pathlib.Path(__file__).parent
imported = set()


def import_for(path):
    """Imports what the script and the files of this folder that it imports name at their beginning."""
    if path in imported:
        return
    imported.add(path)
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if not isinstance(node, (ast.Import, ast.ImportFrom)):
            continue
        names = [node.module] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]
        own = [HERE / f"{name}.py" for name in names if (HERE / f"{name}.py").exists()]
        for file in own:
            import_for(file)
        if not own:
            exec(compile(ast.Module([node], []), str(path), "exec"), {})


def run(path, arguments, output):
    """In the fork; gives the exit code that python would."""
    with open(output, "wb") as file:
        for stream in (1, 2):
            os.dup2(file.fileno(), stream)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    sys.argv = [str(path), *shlex.split(arguments)]
    code = 0
    try:
        runpy.run_path(str(path), run_name="__main__")
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    return code


def main():
    while script := sys.stdin.readline().strip():
        arguments, output = sys.stdin.readline().rstrip("\n"), sys.stdin.readline().rstrip("\n")
        path = HERE / script
        try:
            import_for(path)
        except Exception:
            pass  # the script itself says what is missing
        process = os.fork()
        if process == 0:
            os._exit(run(path, arguments, output))
        print(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), flush=True)


if __name__ == "__main__":
    main()
