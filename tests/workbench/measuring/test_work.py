from workbench.measuring.work import StopClock


def test_a_stopped_clock_does_not_run():
    now = [10.0]
    clock = StopClock(lambda: now[0])
    now[0] = 12.0
    with clock.stopped():
        now[0] = 17.0
    now[0] = 18.0
    assert clock() == 13.0


def test_it_runs_again_after_an_error():
    now = [0.0]
    clock = StopClock(lambda: now[0])
    try:
        with clock.stopped():
            now[0] = 5.0
            raise KeyError
    except KeyError:
        pass
    now[0] = 6.0
    assert clock() == 1.0
