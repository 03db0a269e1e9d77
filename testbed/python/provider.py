"""A provider of another make, nostr-dvm, that does benchmarks.

provider.py RELAY DIRECTORY SOLUTION KIND: keeps what it needs in the directory, and writes its public key there, into
the file `key`, when it is about to listen. The solution is a program whose settings are filled in from the task.
"""

import json
import os
import sys
from pathlib import Path

RELAY, DIRECTORY, SOLUTION, KIND = sys.argv[1:5]
os.chdir(DIRECTORY)
Path(".env").touch()

import dotenv  # noqa: E402
from nostr_dvm.tasks.generic_dvm import GenericDVM  # noqa: E402
from nostr_dvm.utils.admin_utils import AdminConfig  # noqa: E402
from nostr_dvm.utils.dvmconfig import build_default_config  # noqa: E402
from nostr_dvm.utils.nip89_utils import NIP89Config, check_and_set_d_tag  # noqa: E402
from nostr_sdk import Kind  # noqa: E402

dotenv.load_dotenv(".env", override=True)
admin = AdminConfig()
admin.REBROADCAST_NIP89 = True
admin.REBROADCAST_NIP65_RELAY_LIST = False
admin.UPDATE_PROFILE = False
config = build_default_config("stranger")
config.KIND = Kind(int(KIND))
LISTS = ("RELAY_LIST", "SYNC_DB_RELAY_LIST", "ANNOUNCE_RELAY_LIST", "NIP65_RELAY_LIST", "RECONCILE_DB_RELAY_LIST")
for name in LISTS:
    if hasattr(config, name):
        setattr(config, name, [RELAY])
config.FIX_COST = 0
config.ENABLE_NUTZAP = False
config.USE_OWN_VENV = False
card = NIP89Config()
# Otherwise it announces another kind than it listens for.
card.KIND = config.KIND
about = {"name": "Stranger", "picture": "", "about": "writes programs", "supportsEncryption": True, "nip90Params": {}}
card.DTAG = check_and_set_d_tag("stranger", "Stranger", config.PRIVATE_KEY, "")
card.CONTENT = json.dumps(about)
dvm = GenericDVM(name="Stranger", dvm_config=config, nip89config=card, admin_config=admin, options={})


async def process(form):
    task = json.loads(json.loads(form["options"])["input"])
    settings = {}
    for function in task["functions"]:
        settings.update(function["settings"])
    text = Path(SOLUTION).read_text()
    return json.dumps({"files": {task["entry"]: text.replace("SETTINGS = {}", f"SETTINGS = {settings!r}")}})


dvm.process = process
Path("key.part").write_text(config.PUBLIC_KEY)
os.rename("key.part", "key")
dvm.run()
