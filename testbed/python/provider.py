"""A provider of another make, nostr-dvm, that does benchmarks, or embeddings.

provider.py RELAY DIRECTORY WORK KIND: keeps what it needs in the directory, and writes its public key there, into the
file `key`, when it is about to listen. The work is `oa.embedding.v1`, or the path of a program that solves benchmarks:
its settings are filled in from the task.
"""

import json
import os
import sys
from pathlib import Path

RELAY, DIRECTORY, WORK, KIND = sys.argv[1:5]
EMBEDDING = "oa.embedding.v1"
PRICE_MSAT = 900
os.chdir(DIRECTORY)
Path(".env").touch()
# The directory of this program is not ours to write to.
sys.dont_write_bytecode = True

import dotenv  # noqa: E402
from nostr_dvm.tasks.generic_dvm import GenericDVM  # noqa: E402
from nostr_dvm.utils.admin_utils import AdminConfig  # noqa: E402
from nostr_dvm.utils.dvmconfig import build_default_config  # noqa: E402
from nostr_dvm.utils.nip89_utils import NIP89Config, check_and_set_d_tag  # noqa: E402
from nostr_sdk import Kind, PublicKey  # noqa: E402

from embedding import embed  # noqa: E402

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
if WORK == EMBEDDING:
    about["capabilities"] = {"supported_jobs": [EMBEDDING]}
    about["pricing"] = {"scheme": "per-job", "per_job_msats": {EMBEDDING: PRICE_MSAT}}
card.CONTENT = json.dumps(about)
dvm = GenericDVM(name="Stranger", dvm_config=config, nip89config=card, admin_config=admin, options={})


def embeddings(task):
    dimensions = task.get("dimensions", 256)
    own = PublicKey.parse(config.PUBLIC_KEY).to_bech32()
    return {
        "embeddings": [embed(text, dimensions) for text in task["texts"]],
        "model_id": "guild-hash-v1",
        "dimensions": dimensions,
        "provenance": {"model": "guild-hash-v1", "provider_id": own},
    }


def solution(task):
    settings = {}
    for function in task["functions"]:
        settings.update(function["settings"])
    text = Path(WORK).read_text()
    return {"files": {task["entry"]: text.replace("SETTINGS = {}", f"SETTINGS = {settings!r}")}}


async def process(form):
    task = json.loads(json.loads(form["options"])["input"])
    return json.dumps(embeddings(task) if WORK == EMBEDDING else solution(task))


dvm.process = process
Path("key.part").write_text(config.PUBLIC_KEY)
os.rename("key.part", "key")
dvm.run()
