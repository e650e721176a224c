"""The rights on a KMS key that a role needs for encrypted volumes.

Source: EBS user guide, "Amazon EBS encryption requirements".
"""

# Those of manifests/iam/kms-policy.json.
KEY_RIGHTS = (
    "kms:CreateGrant",
    "kms:Decrypt",
    "kms:DescribeKey",
    "kms:GenerateDataKeyWithoutPlaintext",
    "kms:ReEncrypt*",
)
RIGHTS_ON_KEY = f"{', '.join(KEY_RIGHTS[:-1])} and {KEY_RIGHTS[-1]}"
