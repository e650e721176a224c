from provisioner.model.errors import Ec2Error, KubeError, Outcome, Reason, StorageError


def test_an_error_of_ec2_keeps_what_a_flow_decides_by():
    error = Ec2Error(
        Reason.THROTTLED,
        "slowly",
        action="CreateVolume",
        code="RequestLimitExceeded",
        retry_after_s=2.0,
    )

    assert isinstance(error, StorageError)
    assert (error.reason, error.message, str(error)) == (Reason.THROTTLED, "slowly", "slowly")
    assert (error.action, error.code, error.retry_after_s) == (
        "CreateVolume",
        "RequestLimitExceeded",
        2.0,
    )
    assert error.outcome is Outcome.NOTHING


def test_an_error_of_the_kubernetes_api_keeps_its_status():
    error = KubeError(Reason.CONFLICT, "changed", status=409, outcome=Outcome.UNKNOWN)

    assert isinstance(error, StorageError)
    assert error.status == 409
    assert repr(error) == "KubeError(Conflict, 'changed', unknown)"


def test_reasons_are_what_kubernetes_takes_as_an_events_reason():
    assert all(reason.isalnum() and reason[0].isupper() for reason in Reason)
    assert len({reason.value for reason in Reason}) == len(Reason)
