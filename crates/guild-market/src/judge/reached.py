"""Calls a submission as its tests do and counts the lines that are reached. The first line of its input is repeated."""

import json
import os
import sys

PLACE = "/submission/"


def decode(members):
    if len(members) == 1:
        if "$int" in members:
            return int(members["$int"])
        if "$float" in members:
            return float(members["$float"])
    return {key[1:] if key[:2] == "$$" else key: value for key, value in members.items()}


def lines_of(code):
    found = {line for _, _, line in code.co_lines() if line}
    for inner in code.co_consts:
        if hasattr(inner, "co_lines"):
            found |= lines_of(inner)
    return found


def main():
    word = sys.stdin.readline().strip()
    answers, write = os.dup(1), os.write
    os.dup2(os.open("/dev/null", os.O_RDONLY), 0)
    os.dup2(2, 1)
    with open("/judge/calls.json", encoding="utf-8") as file:
        calls = json.load(file, object_hook=decode)
    there = set()
    for path in calls["files"]:
        with open(PLACE + path, "rb") as file:
            there |= {(PLACE + path, line) for line in lines_of(compile(file.read(), path, "exec"))}
    reached = set()

    def trace(frame, _event, _arg):
        name = frame.f_code.co_filename
        if not name.startswith(PLACE):
            return None
        reached.add((name, frame.f_lineno))
        return trace

    sys.path[0] = PLACE[:-1]
    sys.settrace(trace)
    __import__(calls["module"])
    module = sys.modules[calls["module"]]
    for call in calls["calls"]:
        try:
            function = module
            for part in call["call"].split("."):
                function = getattr(function, part)
            function(*call["args"])
        except Exception:  # A test may want one, and the tests have judged it already.
            pass
    sys.settrace(None)
    write(answers, f"{word} {len(reached & there)} {len(there)}\n".encode())
    os._exit(0)


main()
