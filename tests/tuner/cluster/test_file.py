from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from tuner.cluster.__main__ import main
from tuner.cluster.file import check_file
from tuner.cluster.pins import image_faults

pytest.importorskip("jsonschema")
pytest.importorskip("botocore")

ROOT = Path(__file__).parents[3]
AWS = ROOT / "cluster.yaml"
SHIPPED = [AWS, *sorted((ROOT / "docs" / "clusters").glob("*.yaml"))]
GCP, KUBERAY, LOCAL = (
    ROOT / "docs" / "clusters" / f"{n}.yaml" for n in ("gcp", "kuberay", "local")
)


FILLED_IN = {
    "sg-0123456789abcdef0": "sg-00000000000000001",
    "my-project": "our-project",
    "192.0.2.1": "10.0.0.1",
    "BUCKET": "our-bucket",
    "my-registry": "our-registry",
    "ssh_user: me ": "ssh_user: us ",
    "{Name: stockpot-head}": "{Name: our-head}",
    "serviceAccountName: stockpot ": "serviceAccountName: ours ",
}


def filled_in(path: Path) -> str:
    """As somebody edits it who leaves the marks where they are."""
    text = path.read_text(encoding="utf-8")
    for old, new in FILLED_IN.items():
        text = text.replace(old, new)
    return text


@pytest.fixture
def aws(tmp_path: Path) -> Path:
    path = tmp_path / "cluster.yaml"
    path.write_text(filled_in(AWS), encoding="utf-8")
    return path


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.name)
def test_what_is_shipped_is_clean_once_it_is_filled_in(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = tmp_path / path.name
    mine.write_text(filled_in(path), encoding="utf-8")
    assert main(["check", str(mine)]) == 0
    assert "nothing wrong" in capsys.readouterr().out


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.name)
def test_everything_that_must_be_changed_is_a_fault_with_its_line(path: Path) -> None:
    text = path.read_text(encoding="utf-8").splitlines()
    told = [int(fault.split()[1].rstrip(":")) for fault in check_file(path, "s3://b/runs")]
    marks = [n for n, line in enumerate(text, 1) if re.search(r"# CHANGE(?!,)", line)]
    assert marks and len(told) >= len(marks)
    for mark in marks:  # what it is about stands beside it or soon below
        assert any(mark <= line <= mark + 3 for line in told), text[mark - 1]


def test_what_is_right_as_shipped_needs_no_more_than_its_mark_removed(aws: Path) -> None:
    text = aws.read_text().replace("our-head", "stockpot-head")
    aws.write_text(text)
    (fault,) = check_file(aws)
    assert "'stockpot-head' is marked CHANGE; write your own, or remove the mark" in fault
    aws.write_text(text.replace("# CHANGE: a profile", "# A profile"))
    assert check_file(aws) == []
    aws.write_text(text.replace("# CHANGE: a profile", "# sg-0123456789abcdef0, a profile"))
    assert check_file(aws) == []  # a comment is no setting


@pytest.mark.parametrize("path", [AWS, GCP, LOCAL], ids=lambda path: path.name)
def test_every_room_of_the_packages_is_sent_to_the_machines(path: Path) -> None:
    """A pattern without a '/' before it holds at every depth: `runs` would be tuner/runs too."""
    loose = [p for p in yaml.safe_load(path.read_text())["rsync_exclude"] if p[0] != "/"]
    packages = [ROOT / "model", ROOT / "tuner", ROOT / "search_spaces"]
    folders = {f.name for package in packages for f in (package, *package.rglob("*")) if f.is_dir()}
    assert not {pattern.strip("*/") for pattern in loose} & folders


# file, what is written instead of what, and what is said about it
BAD = {
    "a misspelt key": (AWS, "max_workers: 4  ", "max_worker: 4  ", "did you mean 'max_workers'?"),
    "no head": (AWS, "head_node_type: head", "", "Ray does not take it: "),
    "another provider": (AWS, "type: aws", "type: asw", "provider 'asw': did you mean 'aws'?"),
    "a misspelt setting": (
        AWS,
        "SecurityGroupIds: [",
        "SecurityGroupsIds: [",
        "'SecurityGroupsIds' is not a setting of the machine; did you mean 'SecurityGroupIds'?",
    ),
    "a misspelt setting inside another": (
        AWS,
        "VolumeType: gp3",
        "VolumeTyp: gp3",
        "'BlockDeviceMappings.Ebs.VolumeTyp' is not a setting of the machine; did you mean",
    ),
    "a misspelt setting of Google's": (
        GCP,
        "guestAccelerators:",
        "guestAccelerator:",
        "did you mean 'guestAccelerators'?",
    ),
    "an open dashboard": (
        AWS,
        "--dashboard-host=127.0.0.1",
        "--dashboard-host=0.0.0.0",
        "the dashboard is open on 0.0.0.0",
    ),
    "no token": (
        LOCAL,
        "RAY_AUTH_MODE=token",
        "RAY_AUTH_MODE=disabled",
        "'worker_start_ray_commands' starts Ray without a token",
    ),
    "a token that nobody brings": (
        AWS,
        "  /home/ray/.ray/auth_token: ~/.ray/auth_token\n",
        "",
        "no token is brought to the machines",
    ),
    "SSH from everywhere": (
        AWS,
        "SecurityGroupIds: [sg-00000000000000001]",
        "KeyName: mine",
        "opens SSH to the world",
    ),
    "a port for everybody": (
        AWS,
        "  cache_stopped_nodes: false",
        "  cache_stopped_nodes: false\n  security_group:\n    IpPermissions:\n"
        "      - {FromPort: 8265, ToPort: 8265, IpProtocol: tcp, IpRanges: [{CidrIp: 0.0.0.0/0}]}",
        "port 8265 is open to the world",
    ),
    "an image that changes": (
        AWS,
        "rayproject/ray:2.60.0-py311-gpu",
        "rayproject/ray:latest-gpu",
        "'rayproject/ray:latest-gpu' is not pinned",
    ),
    "an image with another Ray": (
        GCP,
        "ray:2.60.0-py311",
        "ray:2.50.1-py311",
        "has Ray 2.50.1, the project's is 2.60.0",
    ),
    "another version": (
        AWS,
        "pip install --quiet --constraint",
        "pip install torch==2.1.0 --constraint",
        "'torch==2.1.0' is not the project's version",
    ),
    "storage that nobody shares": (
        AWS,
        "  - chmod 600",
        "  - python -m tuner.search --storage-path /data/runs\n  - chmod 600",
        "storage '/data/runs' is a folder of its own on each machine",
    ),
    "a head that trains": (AWS, "resources: {CPU: 0}", "resources: {CPU: 2}", "takes trials"),
    "spot machines that are stopped": (
        AWS,
        "cache_stopped_nodes: false",
        "cache_stopped_nodes: true",
        "spot machines cannot be stopped",
    ),
    "little shared memory": (AWS, "    - --shm-size=8g", "    - --init", "add --shm-size=8g"),
    "a Kubernetes service for everybody": (
        KUBERAY,
        "serviceType: ClusterIP",
        "serviceType: LoadBalancer",
        "the dashboard is open",
    ),
    "Kubernetes without a token": (
        KUBERAY,
        "authOptions: {mode: token}",
        "authOptions: {mode: disabled}",
        "Ray starts without a token",
    ),
    "a misspelt setting of a job": (
        KUBERAY,
        "ttlSecondsAfterFinished",
        "ttlSecondAfterFinished",
        "is not a setting of a RayJob; did you mean 'ttlSecondsAfterFinished'?",
    ),
    "a misspelt setting of workers": (KUBERAY, "maxReplicas: 4", "maxReplica: 4", "'maxReplicas'?"),
    "a number that must be a text": (KUBERAY, 'num-cpus: "0"', "num-cpus: 0", "write it in quotes"),
    "a text that must be a number": (KUBERAY, "maxReplicas: 4", 'maxReplicas: "4"', "is a number"),
    "storage in a pod": (KUBERAY, "s3://our-bucket/runs", "/runs", "storage '/runs' is a folder"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_wrong_is_said(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, old, new, message = BAD[name]
    text = filled_in(source)
    assert old in text
    path = tmp_path / "bad.yaml"
    path.write_text(text.replace(old, new), encoding="utf-8")
    assert main(["check", str(path)]) == 2
    assert message in capsys.readouterr().err


def test_all_is_said_at_once_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    text = AWS.read_text(encoding="utf-8")
    text = text.replace("InstanceType: m5.large", "InstanceTyp: m5.large")
    text = text.replace("127.0.0.1", "0.0.0.0").replace("max_workers: 4  ", "max_worker: 4  ")
    path.write_text(text, encoding="utf-8")
    faults = check_file(path)
    line = 1 + text[: text.index("InstanceTyp:")].count("\n")
    assert any(fault.startswith(f"line {line}: node type 'head'") for fault in faults)
    assert any("dashboard" in fault for fault in faults)
    assert any("'max_worker' is not a key" in fault for fault in faults)


def test_workers_need_a_profile_for_s3(aws: Path) -> None:
    lines = aws.read_text(encoding="utf-8").splitlines()
    aws.write_text("\n".join(line for line in lines if "IamInstance" not in line))
    (fault,) = check_file(aws)
    assert "node type 'gpu' has no IamInstanceProfile" in fault


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("- a list", "must be a mapping"),
        ("a: [", "not valid YAML"),
        ("", "'cluster_name' is missing"),
        ("cluster_name: x\nprovider: 3\n", "'provider': 3 is not of type 'object'"),
        ("cluster_name: x\nprovider: {type: aws}\navailable_node_types: [a]\n", "of type 'object'"),
    ],
)
def test_what_is_no_cluster_file_is_refused(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(text)
    assert any(message in fault for fault in check_file(path))


def test_storage_may_be_asked_about_alone(aws: Path) -> None:
    (fault,) = check_file(aws, "runs")
    assert "storage 'runs'" in fault
    assert not check_file(aws, "runs", shared=True)
    assert not check_file(aws, "s3://bucket/runs")


def test_a_script_can_ask_whether_a_run_is_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for place in (str(tmp_path), f"file://{tmp_path}"):
        assert main(["has", place, "big"]) == 3
        assert "big: is not there yet" in capsys.readouterr().out
    (tmp_path / "big").mkdir()
    (tmp_path / "big" / "ledger.jsonl").write_text("{}\n")
    for place in (str(tmp_path), f"file://{tmp_path}"):
        assert main(["has", place, "big"]) == 0
        assert "big: is there" in capsys.readouterr().out
    assert main(["has", "s3://key:word@nowhere?endpoint_override=http://127.0.0.1:1", "big"]) == 2


def test_images_are_pinned_by_tag_or_digest() -> None:
    assert not image_faults("rayproject/ray:2.60.0-py311-gpu")
    assert not image_faults("registry:5000/mine@sha256:" + "0" * 64)
    assert not image_faults("registry:5000/mine:1.2")
    assert image_faults("registry:5000/mine")
    assert "ended with Ray 2.30" in image_faults("rayproject/ray-ml:2.30.0")[0]
