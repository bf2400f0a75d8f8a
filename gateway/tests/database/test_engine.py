"""Opening, migrating and using a database: errors in a sentence, transactions whole."""

import os
import socket
import sqlite3
import stat
import subprocess
import sys
import threading

import pytest
import sqlalchemy as sa

from mild.errors import DataFileError
from mild_gateway.access import AccessStore, StoreError
from mild_gateway.access.keys import Key, digest_of, hint_of, new_key
from mild_gateway.database import CommitUnknownError, DatabaseError, InvalidRowError, read_address
from mild_gateway.database import schema as schema_module
from mild_gateway.database.engine import Database, inspect_database, open_database, upsert
from mild_gateway.database.schema import NO_TABLES, SCHEMA
from mild_gateway.database.tables import metadata
from postgres_cases import PASSWORD, free_port


@pytest.fixture
def database(store_place):
    opened = open_database(store_place)
    yield opened
    opened.close()


@pytest.fixture
def server(postgres):
    yield postgres.server
    if not postgres.server.is_running():
        postgres.server.start()


def names(database):
    with database.transaction() as connection:
        return list(connection.scalars(sa.select(PROCESSES.c.name).order_by(PROCESSES.c.name)))


PROCESSES = metadata.tables["processes"]
ROW = {"name": "a", "seen": 1.0}


def test_every_table_and_index_is_created(database):
    with database.transaction() as connection:
        inspector = sa.inspect(connection)
        namespace = "mild" if database.is_postgres else None
        for table in metadata.sorted_tables:
            columns = {
                one["name"]: one["nullable"] for one in inspector.get_columns(table.name, namespace)
            }
            assert columns == {column.name: column.nullable for column in table.columns}
            indexes = {one["name"] for one in inspector.get_indexes(table.name, namespace)}
            assert indexes >= {index.name for index in table.indexes}


def test_a_process_that_knows_keys_alone_creates_the_ledger_too(tmp_path):
    path = str(tmp_path / "mild.sqlite")
    program = (
        "import sys\n"
        "from mild_gateway.access.store import AccessStore\n"
        "store = AccessStore(sys.argv[1])\n"
        "store.open()\n"
    )
    subprocess.run([sys.executable, "-c", program, path], check=True)
    with sqlite3.connect(path) as connection:
        found = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
    connection.close()
    assert found >= set(metadata.tables)


def test_processes_that_come_at_once_create_the_tables_once(store_place):
    errors = []

    def come():
        try:
            open_database(store_place).close()
        except DatabaseError as error:
            errors.append(error)

    threads = [threading.Thread(target=come) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert inspect_database(store_place) == SCHEMA


def test_another_schema_is_refused_and_left_alone(store_place, database):
    with database.transaction() as connection:
        connection.execute(schema_module.schema_number.update().values(number=9999))
    for open_it in (
        open_database,
        inspect_database,
        lambda place: open_database(place, reading=True),
    ):
        with pytest.raises(DataFileError, match=f"schema 9999; this version reads {SCHEMA}"):
            open_it(store_place)


def test_a_creation_that_fails_leaves_everything_as_it_was(store_place, monkeypatch):
    create_all = metadata.create_all

    def fail(connection):
        create_all(connection)
        raise DatabaseError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(metadata, "create_all", fail)
        with pytest.raises(DatabaseError, match="disk is full"):
            open_database(store_place)
    assert inspect_database(store_place) == NO_TABLES
    open_database(store_place).close()
    assert inspect_database(store_place) == SCHEMA


def test_a_schema_of_something_else_is_refused_and_left_alone(postgres):
    postgres.query("CREATE SCHEMA mild; CREATE TABLE mild.mine (x TEXT)")
    with pytest.raises(DataFileError, match="its schema mild belongs to another program"):
        open_database(postgres.address)
    assert postgres.query("SELECT relname FROM pg_class WHERE relname = 'mine'") == [("mine",)]


def test_a_role_that_may_not_make_schemas_can_use_one_that_was_made_for_it(postgres):
    postgres.query("DROP ROLE IF EXISTS guest")
    postgres.query("CREATE ROLE guest LOGIN PASSWORD 'g'")
    try:
        postgres.query("CREATE SCHEMA mild AUTHORIZATION guest")
        url = f"postgresql://guest:g@127.0.0.1:{postgres.server.port}/test"
        open_database(read_address(url)).close()
        assert inspect_database(postgres.address) == SCHEMA
    finally:
        postgres.query("DROP SCHEMA IF EXISTS mild CASCADE; DROP ROLE guest")


def test_tables_stand_in_a_schema_of_their_own(postgres):
    open_database(postgres.address).close()
    schemas = postgres.query(
        "SELECT DISTINCT schemaname FROM pg_tables WHERE schemaname NOT LIKE 'pg_%' "
        "AND schemaname <> 'information_schema'"
    )
    assert schemas == [("mild",)]


def insert_and(database, then):
    """A transaction in which something happens behind the first statement."""
    with database.transaction() as connection:
        connection.execute(PROCESSES.insert(), ROW)
        then(connection)


def test_a_transaction_is_whole_or_nothing_and_the_next_one_works(database):
    with pytest.raises(ZeroDivisionError):
        insert_and(database, lambda _: 1 / 0)
    with pytest.raises(DatabaseError, match="nowhere"):
        insert_and(
            database, lambda connection: connection.execute(sa.text("SELECT * FROM nowhere"))
        )
    assert names(database) == []
    assert not database.broken


@pytest.mark.parametrize("value", [None, object(), "x\0y"])
def test_values_that_do_not_fit_are_told_from_a_database_that_fails(postgres, value):
    database = open_database(postgres.address)
    with pytest.raises((InvalidRowError, TypeError)), database.transaction() as connection:
        upsert(connection, PROCESSES, [{"name": value, "seen": 1.0}], replace=("seen",))
    assert not database.broken
    database.close()


def test_a_connection_that_ends_is_broken_and_says_so_in_a_line(postgres, server):
    database = open_database(postgres.address)
    server.restart()
    with pytest.raises(DatabaseError) as caught:
        names(database)
    assert database.broken
    assert "\n" not in str(caught.value)
    assert not isinstance(caught.value, CommitUnknownError)
    database.close()


def test_an_end_during_the_commit_is_in_doubt(postgres, server):
    database = open_database(postgres.address)
    with pytest.raises(CommitUnknownError):
        insert_and(database, lambda _: server.restart())
    assert database.broken
    database.close()


def test_a_server_that_has_become_a_copy_is_left(postgres):
    database = open_database(postgres.address)
    with database.transaction() as connection:
        connection.execute(sa.text("SET default_transaction_read_only TO on"))
    with pytest.raises(DatabaseError, match="read-only"):
        insert_and(database, print)
    assert database.broken
    database.close()


def refusal(url):
    with pytest.raises((DatabaseError, DataFileError)) as caught:
        open_database(read_address(url))
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
    assert said.endswith("it has the unknown option 'sslmod'.")
    assert said.startswith("postgresql://mild@127.0.0.1:")


def test_the_drivers_own_variables_work(postgres, monkeypatch, tmp_path):
    bare = f"postgresql://mild@127.0.0.1:{postgres.server.port}/test"
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    open_database(read_address(bare)).close()
    monkeypatch.delenv("PGPASSWORD")
    words = tmp_path / "words"
    words.write_text(f"*:*:*:*:{PASSWORD}\n")
    words.chmod(0o600)
    open_database(read_address(f"{bare}?passfile={words}")).close()
    assert "password" in refusal(bare)


@pytest.mark.usefixtures("postgres_server")
def test_a_server_that_listens_and_says_nothing_is_given_up():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        sock.listen(8)
        port = sock.getsockname()[1]
        said = refusal(f"postgresql://me:hush@127.0.0.1:{port}/x?connect_timeout=2")
    assert "timeout" in said


def test_without_the_driver_the_extra_is_named():
    program = (
        "import sys; sys.modules['psycopg'] = None\n"
        "from mild_gateway.database import read_address\n"
        "from mild_gateway.database.engine import open_database\n"
        "from mild.errors import MissingExtraError\n"
        "try: open_database(read_address('postgresql://h/x'))\n"
        "except MissingExtraError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert "gateway[postgres]" in done.stdout


def test_a_store_in_a_file_needs_no_driver(tmp_path):
    program = (
        "import sys\n"
        "from mild_gateway.access import AccessStore\n"
        "from mild_gateway.ledger import LedgerWriter\n"
        "from mild_gateway.dashboard import Dashboard\n"
        "from mild_gateway.config import read_settings\n"
        "store = AccessStore(sys.argv[1]); store.open(); store.close()\n"
        "print([name for name in ('psycopg',) if name in sys.modules])\n"
    )
    path = str(tmp_path / "x")
    open_database(path).close()
    done = subprocess.run([sys.executable, "-c", program, path], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr


def test_settings_are_read_without_sqlalchemy():
    program = "import sys, mild_gateway.config; print('sqlalchemy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.strip() == "False"


# --- files ---


def change(path, *statements):
    connection = sqlite3.connect(path)
    for statement in statements:
        connection.execute(statement)
    connection.commit()
    connection.close()


def test_the_file_is_its_owners_alone_and_holds_no_key(tmp_path):
    store = AccessStore(tmp_path / "mild.sqlite")
    store.open()
    text = new_key()
    key = Key("a", digest_of(text, store.salt()), hint_of(text), 1.0, budget_day=5)
    store.add_key(key)
    assert store.read_keys() == [key]
    for file in tmp_path.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600, file
        assert text.encode() not in file.read_bytes()
    store.close()


def test_what_is_committed_outlives_a_killed_process(tmp_path):
    database = open_database(tmp_path / "mild.sqlite")
    with database.transaction() as connection:
        pragmas = [
            connection.exec_driver_sql(f"PRAGMA {name}").scalar_one()
            for name in ("journal_mode", "synchronous")
        ]
    assert pragmas == ["wal", 1]
    database.close()


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda file: file.write_bytes(b"no database at all" * 100), "not an SQLite file"),
        (lambda file: change(file, "CREATE TABLE a (b)"), "belongs to another program"),
        (
            lambda file: change(file, "PRAGMA application_id = 7", "CREATE TABLE a (b)"),
            "belongs to another program",
        ),
    ],
)
@pytest.mark.parametrize("reading", [True, False])
def test_a_file_of_something_else_is_refused_and_left_alone(tmp_path, make, said, reading):
    file = tmp_path / "x.sqlite"
    make(file)
    before = file.read_bytes()
    with pytest.raises(DataFileError, match=said):
        open_database(file, reading=reading)
    assert file.read_bytes() == before


@pytest.mark.parametrize(
    ("path", "error", "said"),
    [
        ("none/x.sqlite", DataFileError, r"no folder .*none; create it"),
        (".", DatabaseError, "is a folder"),
    ],
)
def test_a_place_where_no_file_can_be_is_named(tmp_path, path, error, said):
    with pytest.raises(error, match=said):
        open_database(tmp_path / path)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")
def test_root_creates_the_file_for_the_owner_of_the_folder(tmp_path):
    folder = tmp_path / "service"
    folder.mkdir()
    os.chown(folder, 4711, 4712)
    store = AccessStore(folder / "mild.sqlite")
    store.open()
    store.salt()
    for file in folder.iterdir():
        found = file.stat()
        assert (found.st_uid, found.st_gid) == (4711, 4712), file
        assert stat.S_IMODE(found.st_mode) == 0o600
    store.close()


@pytest.mark.parametrize("closed", ["mild.sqlite", "."])
def test_a_file_that_may_only_be_read_is_named(tmp_path, monkeypatch, closed):
    path = tmp_path / "mild.sqlite"
    open_database(path).close()
    # Root may write everywhere: the system is asked, and answers as for others.
    kept = tmp_path / closed
    monkeypatch.setattr(os, "access", lambda place, mode: os.fspath(place) != str(kept))
    with pytest.raises(
        DatabaseError, match=r"must be writable for \w+, who runs this process; the file belongs to"
    ):
        open_database(path)


def test_a_lock_is_waited_for_only_so_long(tmp_path):
    store = AccessStore(tmp_path / "mild.sqlite", patience=0.05)
    store.open()
    other = sqlite3.connect(tmp_path / "mild.sqlite", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreError, match="locked"):
        store.refresh("w", 0)
    other.execute("ROLLBACK")
    other.close()
    assert store.refresh("w", 0).keys == []
    store.close()


def test_a_new_file_that_another_worker_is_making_is_waited_for(tmp_path):
    path = tmp_path / "mild.sqlite"
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    timer = threading.Timer(0.2, lambda: other.execute("ROLLBACK"))
    timer.start()
    try:
        database = open_database(path)
        assert names(database) == []
        database.close()
    finally:
        timer.join()
        other.close()


def test_a_reader_changes_nothing(tmp_path):
    path = tmp_path / "mild.sqlite"
    open_database(path).close()
    database = open_database(path, reading=True)
    with pytest.raises(DatabaseError, match="readonly"), database.transaction() as connection:
        connection.execute(PROCESSES.insert(), ROW)
    database.close()
    assert isinstance(database, Database)


@pytest.fixture
def silent_port():
    """A server that accepts connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_a_server_that_accepts_and_is_silent_is_given_up(silent_port):
    pytest.importorskip("psycopg")
    said = refusal(f"postgresql://mild:hush@127.0.0.1:{silent_port}/x?connect_timeout=2")
    assert "time" in said


def test_a_server_that_falls_silent_breaks_the_connection(postgres, server, monkeypatch):
    database = open_database(postgres.address)
    monkeypatch.setattr("mild_gateway.database.postgres.ANSWER_SECONDS", 0.3)
    server.pause()
    try:
        with pytest.raises(DatabaseError, match=r"no answer within 0\.3 s"):
            names(database)
        assert database.broken
        database.close()
    finally:
        server.resume()
    database = open_database(postgres.address)
    assert names(database) == []
    database.close()


def test_a_server_that_falls_silent_in_a_commit_leaves_it_in_doubt(postgres, server, monkeypatch):
    database = open_database(postgres.address)
    monkeypatch.setattr("mild_gateway.database.postgres.ANSWER_SECONDS", 0.3)
    try:
        with pytest.raises(CommitUnknownError):
            insert_and(database, lambda _: server.pause())
        assert database.broken
    finally:
        server.resume()
    database.close()


@pytest.mark.parametrize(
    "statement", ["PRAGMA application_id", "PRAGMA auto_vacuum", "PRAGMA journal"]
)
def test_a_file_that_another_process_sets_up_is_waited_for(statement, tmp_path, monkeypatch):
    """While one process changes the journal, SQLite fails the statements of others without waiting."""
    failures = []

    class BusyOnce(sqlite3.Connection):
        def execute(self, sql, *values):
            if sql.startswith(statement) and not failures:
                error = sqlite3.OperationalError("database is locked")
                error.sqlite_errorcode = sqlite3.SQLITE_BUSY
                failures.append(error)
                raise error
            return super().execute(sql, *values)

    connect = sqlite3.connect
    monkeypatch.setattr(
        sqlite3, "connect", lambda *args, **kw: connect(*args, **kw, factory=BusyOnce)
    )
    store = AccessStore(str(tmp_path / "mild.sqlite"))
    store.open()
    assert len(failures) == 1
    assert store.read_keys() == []
    store.close()
