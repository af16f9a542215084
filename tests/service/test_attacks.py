"""What others feel while one client does all that it may, and more: one service, attack by attack.

The bounds are wide: these tests share the machine with others. Before there were budgets, users got
no answer under most of these attacks. `tests.soak` attacks for longer.
"""

import time

import pytest
from attackers import NAMES, attacking, use
from service_data import fill
from serving import serving

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def attacked(tmp_path_factory):
    """A service that has loaded what it loads once, and the memory that it holds then."""
    with serving(fill(tmp_path_factory.mktemp("attacks") / "c")) as server:
        use(server.port, 1)
        yield server, server.resident()


@pytest.mark.parametrize("name", NAMES)
def test_others_are_answered_during_an_attack(attacked, name):
    server, before = attacked
    with attacking(server.port, name, 10) as attack:
        time.sleep(1.5)
        felt = use(server.port, 8)
        assert attack.poll() is None or attack.returncode == 0
    assert not felt.refused
    assert felt.quantile("text", 0.9) <= 4
    assert felt.quantile("item", 0.9) <= 2
    assert felt.quantile("health", 0.9) <= 1
    assert server.resident() - before <= 700 << 20
    assert not [each for each in server.entries() if each["level"] in ("error", "critical")]
