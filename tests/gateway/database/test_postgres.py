"""PostgreSQL behind the face: errors in a sentence, transactions whole, nobody waits for ever."""

import socket
import subprocess
import sys
import threading

import pytest

from mild.errors import DataFileError
from mild.gateway.database import DatabaseError, DoubtError, UnfitError, read_address
from mild.gateway.database.face import marks
from mild.gateway.database.tables import connect_to
from postgres_cases import PASSWORD, free_port


@pytest.fixture
def database(postgres):
    opened = connect_to(postgres.address)
    opened.execute("CREATE SCHEMA mild")
    opened.execute("CREATE TABLE t (a BIGINT PRIMARY KEY, b TEXT NOT NULL)")
    yield opened
    opened.close()


@pytest.fixture
def server(postgres):
    yield postgres.server
    if not postgres.server.is_running():
        postgres.server.start()


def test_rows_go_in_and_come_out(database):
    database.executemany("INSERT INTO t VALUES (?, ?)", [(1, "a?%"), (2, "b")])
    found = database.execute("SELECT a, b FROM t WHERE b LIKE 'a%' OR a = ? ORDER BY a", (2,))
    assert (found.rows, found.affected, found.first, found.value) == (
        [(1, "a?%"), (2, "b")],
        2,
        (1, "a?%"),
        1,
    )
    assert database.execute("DELETE FROM t WHERE a > ?", (5,)).affected == 0
    both = f"SELECT a FROM t WHERE (a, b) IN (VALUES {marks(2, 2)}) ORDER BY a"
    assert database.execute(both, (1, "a?%", 2, "no")).rows == [(1,)]


def insert_and(database, then):
    """A transaction in which something happens behind the first statement."""
    with database.transaction():
        database.execute("INSERT INTO t VALUES (1, 'a')")
        then()


def test_a_transaction_is_whole_or_nothing_and_the_next_one_works(database):
    with pytest.raises(ZeroDivisionError):
        insert_and(database, lambda: 1 / 0)
    with pytest.raises(DatabaseError, match='relation "nowhere" does not exist'):
        insert_and(database, lambda: database.execute("SELECT * FROM nowhere"))
    assert database.execute("SELECT count(*) FROM t").value == 0
    assert not database.broken


@pytest.mark.parametrize("values", [(1, None), (2**80, "x"), (object(), "x"), (1, "a\0b")])
def test_values_that_do_not_fit_are_told_from_a_database_that_fails(database, values):
    with pytest.raises(UnfitError):
        database.execute("INSERT INTO t VALUES (?, ?)", values)
    assert not database.broken


def test_a_connection_that_ends_is_broken_and_says_so_in_a_line(database, server):
    server.restart()
    with pytest.raises(DatabaseError) as caught:
        database.execute("SELECT 1")
    assert database.broken
    assert "\n" not in str(caught.value)
    assert not isinstance(caught.value, DoubtError)


def test_an_end_in_the_middle_of_the_last_word_is_in_doubt(database, server):
    with pytest.raises(DoubtError):
        insert_and(database, server.restart)
    assert database.broken


def test_a_server_that_is_silent_is_given_up(postgres, database):
    database._connection.patience = 0.3
    postgres.server.pause()
    try:
        with pytest.raises(DatabaseError, match=r"it has not answered for 0\.3 s"):
            database.execute("SELECT 1")
    finally:
        postgres.server.resume()
    assert database.broken


def test_a_server_that_has_become_a_copy_is_left(database):
    database._connection.execute("SET default_transaction_read_only TO on")
    with pytest.raises(DatabaseError, match="read-only"):
        database.execute("INSERT INTO t VALUES (1, 'a')")
    assert database.broken


def test_a_lock_of_another_is_waited_for_only_so_long(postgres, database):
    other = connect_to(postgres.address)
    database._connection.patience = 0.5
    with other.transaction():
        other.execute("INSERT INTO t VALUES (1, 'a')")
        with pytest.raises(DatabaseError, match="has not answered"):
            database.execute("INSERT INTO t VALUES (1, 'b')")
    assert other.execute("SELECT b FROM t").rows == [("a",)]
    other.close()


def refusal(url):
    with pytest.raises((DatabaseError, DataFileError)) as caught:
        connect_to(read_address(url))
    said = str(caught.value)
    assert PASSWORD not in said
    assert "\n" not in said
    return said


def test_why_there_is_no_connection_is_one_line_without_the_password(postgres):
    server = postgres.server
    assert refusal(server.url("test", "wrong")) == 'password authentication failed for user "mild"'
    assert refusal(server.url("nowhere")) == 'database "nowhere" does not exist'
    nobody = f"postgresql://mild:hush@127.0.0.1:{free_port()}/x"
    assert refusal(nobody) == "Connection refused"
    assert "resolve host" in refusal("postgresql://mild:hush@nowhere.invalid/x")
    said = refusal(server.url("test") + "?sslmod=require")
    assert said.endswith("the address must be libpq's; there is no option 'sslmod'.")
    assert said.startswith("postgresql://mild@127.0.0.1:")


def test_the_drivers_own_variables_work(postgres, monkeypatch, tmp_path):
    server = postgres.server
    bare = f"postgresql://mild@127.0.0.1:{server.port}/test"
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    connect_to(read_address(bare)).close()
    monkeypatch.delenv("PGPASSWORD")
    words = tmp_path / "words"
    words.write_text(f"*:*:*:*:{PASSWORD}\n")
    words.chmod(0o600)
    connect_to(read_address(f"{bare}?passfile={words}")).close()
    assert "password" in refusal(bare)


@pytest.mark.usefixtures("postgres_server")
def test_a_server_that_listens_and_says_nothing_is_given_up():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        sock.listen(8)
        port = sock.getsockname()[1]
        said = refusal(f"postgresql://me:hush@127.0.0.1:{port}/x?connect_timeout=2")
    assert "timeout" in said


def test_threads_with_connections_of_their_own_do_not_meet(postgres, database):
    def count():
        mine = connect_to(postgres.address)
        for _ in range(20):
            mine.execute(
                "INSERT INTO t VALUES (1, '1') ON CONFLICT (a) DO UPDATE SET "
                "b = CAST(CAST(t.b AS BIGINT) + 1 AS TEXT)"
            )
        mine.close()

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert database.execute("SELECT b FROM t").value == "80"


def test_without_the_driver_the_extra_is_named():
    program = (
        "import sys; sys.modules['psycopg'] = None\n"
        "from mild.gateway.database import read_address\n"
        "from mild.gateway.database.tables import connect_to\n"
        "from mild.errors import MissingExtraError\n"
        "try: connect_to(read_address('postgresql://h/x'))\n"
        "except MissingExtraError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert "pip install 'mild-learn[gateway,postgres]'" in done.stdout


def test_a_store_in_a_file_needs_no_driver(tmp_path):
    program = (
        "import sys\n"
        "from mild.gateway.access import open_store\n"
        "from mild.gateway.ledger import LedgerWriter\n"
        "from mild.gateway.page import Board\n"
        "from mild.gateway.config import read_settings\n"
        "store = open_store(sys.argv[1]); store.open(); store.close()\n"
        "print([name for name in sys.modules if 'psycopg' in name])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "x")], capture_output=True, text=True
    )
    assert done.stdout.strip() == "[]"
