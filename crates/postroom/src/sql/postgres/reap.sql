SELECT {queue+_reap}()
