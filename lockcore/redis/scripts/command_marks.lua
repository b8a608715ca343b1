-- Put before every script (FORGETTING IN ONE LIFE): what Redis itself counts of commands by which a running node can lose data or change
-- how it keeps them. The counts only grow within the life of a process, so whatever was done and put right again still shows.
-- KEYS and ARGV  those of the script behind it
-- Reply 'lost resets set': calls of commands that lose or replace data; the time that CONFIG RESETSTAT took, + 1, or 0 where it never ran
--       (it sets all counts to 0, its own afterwards to 1); calls of CONFIG SET
local LOSES = {}
for name in string.gmatch('replicaof slaveof failover flushall flushdb swapdb debug restore restore-asking migrate move copy rename renamenx ' ..
  'module|load module|loadex', '%S+') do LOSES[name] = true end

local function command_marks()
  local lost, resets, set = 0, 0, 0
  for name, calls, usec in string.gmatch(redis.call('INFO', 'commandstats'), 'cmdstat_([^:]+):calls=(%d+),usec=(%d+)') do
    if LOSES[name] then lost = lost + calls end
    if name == 'config|set' then set = set + calls end
    if name == 'config|resetstat' and calls ~= '0' then resets = usec + 1 end
  end
  return string.format('%.0f %.0f %.0f', lost, resets, set)
end
