-- After skip.lua: the parts that follow run all commands.
for_each_lease = run_each
