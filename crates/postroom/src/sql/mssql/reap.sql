EXEC {queue+_Reap}
