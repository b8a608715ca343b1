-- In front of most scripts (docs/protocol.md, FORGETTING IN ONE LIFE): reads from INFO the calls of the commands that
-- remove or replace data, or change how it is stored. The counts only grow in the life of a process, so a change that
-- was undone is still visible.
-- KEYS and ARGV  those of the script that follows
-- Reply 'lost resets set': calls of commands that remove or replace data; the time that CONFIG RESETSTAT took, + 1, or
--       0 if it was never called (it sets all counts to 0, and its own afterwards to 1); calls that change settings or
--       users. A user without rights makes a server that loads its file drop the transactions of that user.
local function command_marks()
  local losing = {replicaof = true, slaveof = true, failover = true, flushall = true, flushdb = true, swapdb = true,
    debug = true, restore = true, ['restore-asking'] = true, migrate = true, move = true, copy = true, rename = true,
    renamenx = true, ['module|load'] = true, ['module|loadex'] = true}
  local setting = {['config|set'] = true, ['acl|setuser'] = true, ['acl|deluser'] = true, ['acl|load'] = true}
  local lost, resets, sets = 0, 0, 0
  local stats = redis.call('INFO', 'commandstats')
  for name, calls, usec in string.gmatch(stats, 'cmdstat_([^:]+):calls=(%d+),usec=(%d+)') do
    if losing[name] then lost = lost + calls end
    if name == 'config|resetstat' and calls ~= '0' then resets = usec + 1 end
    if setting[name] then sets = sets + calls end
  end
  return string.format('%.0f %.0f %.0f', lost, resets, sets)
end
