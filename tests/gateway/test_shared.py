import os

from mild.gateway.shared import open_shared, shared_file, shared_size


def test_processes_see_each_others_rows():
    descriptor = shared_file(shared_size(2, 3, 16))
    ours = open_shared(2, 3, 16, descriptor)
    child = os.fork()
    if child == 0:
        theirs = open_shared(2, 3, 16, descriptor)
        theirs.cells.row(1)[2] = 2.5
        theirs.sessions[5] = 7
        os._exit(0)
    os.waitpid(child, 0)
    ours.cells.row(0)[2] = 1.0
    assert ours.cells.total(2) == 3.5
    assert ours.cells.largest(2) == 2.5
    assert ours.sessions[5] == 7
    assert len(ours.sessions) == 16
    os.close(descriptor)
