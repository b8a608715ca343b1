-- In front of most scripts (docs/protocol.md, FORGETTING IN ONE LIFE): reads from INFO the calls of the commands that
-- remove or replace data, or change how it is stored. The counts only grow in the life of a process, so a change that
-- was undone is still visible.
-- KEYS and ARGV  those of the script that follows
-- Reply 'lost resets set': calls of commands that remove or replace data; the time that CONFIG RESETSTAT took, + 1, or
--       0 if it was never called (it sets all counts to 0, and its own afterwards to 1); calls that change settings or
--       users. A user without rights makes a server that loads its file drop the transactions of that user.
local function command_marks()
  local counted_as = {replicaof = 'lost', slaveof = 'lost', failover = 'lost', flushall = 'lost', flushdb = 'lost',
    swapdb = 'lost', debug = 'lost', restore = 'lost', ['restore-asking'] = 'lost', migrate = 'lost', move = 'lost',
    copy = 'lost', rename = 'lost', renamenx = 'lost', ['module|load'] = 'lost', ['module|loadex'] = 'lost',
    ['config|resetstat'] = 'resets', ['config|set'] = 'sets', ['acl|setuser'] = 'sets', ['acl|deluser'] = 'sets',
    ['acl|load'] = 'sets'}
  local marks = {lost = 0, resets = 0, sets = 0}
  local stats = redis.call('INFO', 'commandstats')
  -- To find the lines without a pattern takes half the time of one pattern for all.
  local _, last = string.find(stats, 'cmdstat_', 1, true)
  while last do
    local name, next_field = string.match(stats, '^([^:]*):?()', last + 1)
    local kind = counted_as[name]
    if kind then
      local calls, usec = string.match(stats, '^calls=(%d+),usec=(%d+)', next_field)
      if kind ~= 'resets' then marks[kind] = marks[kind] + calls elseif calls ~= '0' then marks.resets = usec + 1 end
    end
    _, last = string.find(stats, 'cmdstat_', next_field, true)
  end
  return string.format('%.0f %.0f %.0f', marks.lost, marks.resets, marks.sets)
end
