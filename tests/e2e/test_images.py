from tests.e2e import images


def test_only_images_that_storage_tests_name_are_made():
    layers = {"base": b"base", "agnhost": b"program"}
    found = images.listed(
        [
            "registry.k8s.io/e2e-test-images/agnhost:2.63.0",
            "registry.k8s.io/pause:3.10.2",
            "registry.k8s.io/sig-storage/hello-populator:v1.0.1",
            "gcr.io/k8s-authenticated-test/agnhost:2.6",
            "registry.k8s.io/pause:3.10.2",
            "",
        ],
        layers,
    )

    assert [(each.name, list(each.layers)) for each in found] == [
        ("registry.k8s.io/e2e-test-images/agnhost:2.63.0", [b"base", b"program"]),
        ("registry.k8s.io/pause:3.10.2", [b"base"]),
    ]
    assert found[0].runs["Entrypoint"] == ["/agnhost"]
