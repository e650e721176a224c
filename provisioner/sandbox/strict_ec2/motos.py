"""moto's classes, as Any: once patched they are no longer what their annotations say.

The one place that loads moto. Its environment is read at import, so it is set here first: one
account, and no 1,300 public images in every region.
"""

import gc
import os
from importlib import import_module
from typing import Any, Final

from provisioner.sandbox.strict_ec2 import data_files

ACCOUNT: Final = "123456789012"
os.environ["MOTO_ACCOUNT_ID"] = ACCOUNT
os.environ["MOTO_EC2_LOAD_DEFAULT_AMIS"] = "false"
data_files.hasten()
# Nothing of what is loaded is garbage, and collections look at all of it: 0.3 s of 1.0.
_collects = gc.isenabled()
gc.disable()

_ebs: Any = import_module("moto.ec2.models.elastic_block_store")
Volume: Any = _ebs.Volume
Snapshot: Any = _ebs.Snapshot
VolumeAttachment: Any = _ebs.VolumeAttachment
EBSBackend: Any = _ebs.EBSBackend
BlockDeviceType: Any = import_module("moto.ec2.models.block_device").BlockDeviceType
Instance: Any = import_module("moto.ec2.models.instances").Instance
TaggedEC2Resource: Any = import_module("moto.ec2.models.core").TaggedEC2Resource
EC2Response: Any = import_module("moto.ec2.responses").EC2Response
_instance_types: Any = import_module("moto.ec2.models.instance_types")
INSTANCE_TYPES: Any = _instance_types.INSTANCE_TYPES
InstanceType: Any = _instance_types.InstanceType
ActionResult: Any = import_module("moto.core.responses").ActionResult
ec2_backends: Any = import_module("moto.ec2.models").ec2_backends
ec2_utils: Any = import_module("moto.ec2.utils")
iam: Any = import_module("moto.iam.models")
kms: Any = import_module("moto.kms.models")
settings: Any = import_module("moto.settings")
backends: Any = import_module("moto.backends")
responses: Any = import_module("moto.core.responses")
core_utils: Any = import_module("moto.core.utils")
moto_api_backend: Any = import_module("moto.moto_api._internal").moto_api_backend
ActionAuthenticatorMixin: Any = import_module("moto.core.authorization").ActionAuthenticatorMixin
serialize: Any = import_module("moto.core.serialize")
werkzeug_app: Any = import_module("moto.moto_server.werkzeug_app")

if _collects:
    gc.enable()
