"""Which cluster and which namespace a command is about."""

from pathlib import Path

import yaml

from provisioner.inspect.reading.kubeconfig import namespace_of, path_of


def a_kubeconfig(path: Path, current: str, **namespaces: str | None) -> str:
    contexts = [
        {"name": name, "context": {"cluster": "c", "user": "u", **({"namespace": n} if n else {})}}
        for name, n in namespaces.items()
    ]
    path.write_text(
        yaml.safe_dump(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}],
                "users": [{"name": "u", "user": {}}],
                "contexts": contexts,
                "current-context": current,
            }
        )
    )
    return str(path)


def test_a_given_kubeconfig_comes_before_the_environment_and_the_home(tmp_path):
    (tmp_path / ".kube").mkdir()
    usual = tmp_path / ".kube/config"
    usual.write_text("")

    assert path_of("mine", {"KUBECONFIG": "theirs"}, tmp_path) == "mine"
    assert path_of(None, {"KUBECONFIG": "theirs"}, tmp_path) == "theirs"
    assert path_of(None, {}, tmp_path) == str(usual)
    assert path_of(None, {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, tmp_path) is None
    assert path_of(None, {}, tmp_path / "elsewhere") is None


def test_the_namespace_is_that_of_the_chosen_context(tmp_path):
    path = a_kubeconfig(tmp_path / "config", "one", one="shop", two="lab", three=None)

    assert namespace_of(path, None) == "shop"
    assert namespace_of(path, "two") == "lab"
    assert namespace_of(path, "three") == ""
    assert namespace_of(path, "four") == ""
    assert namespace_of(str(tmp_path / "none"), None) == ""


def test_without_a_kubeconfig_there_is_no_namespace_and_no_word(capsys):
    assert namespace_of(None, None) == ""
    assert capsys.readouterr() == ("", "")


def test_of_several_files_the_first_with_the_context_wins(tmp_path):
    first = a_kubeconfig(tmp_path / "a", "one", one="shop")
    second = a_kubeconfig(tmp_path / "b", "two", two="lab")

    assert namespace_of(f"{first}:{second}", "two") == "lab"
