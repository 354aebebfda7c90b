import subprocess
import sys

from tinyvit.data.locking import try_lock

HOLD = "import sys; from tinyvit.data.locking import try_lock; f = open(sys.argv[1], 'a'); print(try_lock(f)); input()"


def test_a_lock_that_is_held_is_not_given_and_is_free_once_its_file_is_closed(tmp_path):
    with (tmp_path / "lock").open("a") as first, (tmp_path / "lock").open("a") as second:
        assert try_lock(first) and not try_lock(second)
        first.close()
        assert try_lock(second)


def test_the_lock_of_a_process_that_was_killed_is_free(tmp_path):
    command = [sys.executable, "-c", HOLD, str(tmp_path / "lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "True\n"
        with (tmp_path / "lock").open("a") as file:
            assert not try_lock(file)
            process.kill()
            process.wait()
            assert try_lock(file)
