-- TOP-UP and UPGRADE (docs/protocol.md): restores a lease on a node that lost it, or makes it count there again, while a majority holds it.
-- KEYS  fg:node, then for each lease: its lease keys, then its counter keys
-- ARGV  run id, then for each lease: number of resources, nonce, ttl in ms, T, tail (as in ACQUIRE), id of the caller's hold, version seen
--       version seen: the version of the lease that this node answered to the caller before, '' = none; UPGRADE needs it
-- Reply one string for each lease: '0 stamp 1' the lease counts for T on this node, with this ttl or a longer one
--       | '0 version 0' it does not count; with this version it can be upgraded
--       | '1' another holder's | '2' its last hold was released, the lease that was seen is gone, or its token is above T (a later token of the same attempt): no effect
--       | '4' the tokens of the epoch are used up | 'E' a counter key has no counter
--       error UNINIT if the node is not admitted under this run id.
-- If the lease is there, the id is added if it is missing and has no tombstone.
-- Why atomic: it must not replace a lease of another holder. It writes (nonce, T) only with the counter: this node may have stamped a newer grant.
-- Why the version: each loss of the lease on this node, and each admission of the node, changes it, so an UPGRADE that comes too late has no effect.
local node = redis.call('HMGET', KEYS[1], 'run', 'base')
if node[1] ~= ARGV[1] then return redis.error_reply('UNINIT node not admitted') end
local base = tonumber(node[2])
local out, k, a = {}, 2, 2
while a <= #ARGV do
  local n, nonce, ttl, text, tail, id, seen = tonumber(ARGV[a]), ARGV[a + 1], math.max(tonumber(ARGV[a + 2]), 1), ARGV[a + 3], ARGV[a + 4], ARGV[a + 5], ARGV[a + 6]
  local T, eff, is_foreign, is_newer, missing, has_token, stamp, leases, ids, tombstones, marks = tonumber(text), base, false, false, false, true, nil, {}, '', '', ''
  for i = k, k + n - 1 do
    local l = read_lease(KEYS[i])
    if not l then
      missing = true
    elseif l.nonce ~= nonce then
      is_foreign = true
    else
      l.left = math.max(time_left(KEYS[i], l), 0)
      leases[i], ids, tombstones, ttl = l, merge_ids(ids, l.ids), merge_ids(tombstones, l.tombstones), math.max(ttl, l.left)
      has_token, stamp, marks = has_token and l.token == text, join_stamps(stamp, l), merge_marks(marks, l.close_marks)
      is_newer = is_newer or tonumber(l.token) > T
    end
    local counter = read_counter(KEYS[i + n])
    if not counter then eff = nil elseif eff and counter > eff then eff = counter end
  end
  if not is_released(tombstones, id) then ids = add_id(ids, id) end
  local restores, answer = missing or stamp == '', nil
  local counts = not is_foreign and not restores and has_token and tonumber(stamp) >= base
  if is_foreign then
    answer = '1'
  elseif ids == '' or (restores and seen ~= '') or (is_newer and not restores) then
    answer = '2'
  elseif not restores and not counts and version_of(stamp, base) ~= seen then
    for i = k, k + n - 1 do
      leases[i].ids, leases[i].tombstones, leases[i].close_marks = ids, tombstones, marks
      write_lease(KEYS[i], leases[i])
    end
    answer = '0 ' .. version_of(stamp, base) .. ' 0'
  elseif not eff and not counts then
    answer = 'E'
  else
    -- An UPGRADE takes no number of its own, so it is possible at the end of an epoch too.
    local value = restores and math.max(eff + 1, T) or counts and tonumber(stamp) or math.max(eff, tonumber(stamp))
    if restores and value % 4294967296 == 0 then
      answer = '4'
    else
      local was_counting = counts
      counts = not restores or value == T
      local number, renewed = string.format('%.0f', value), parse_lease(nonce .. ' 0 ' .. tail)
      if restores then marks = merge_marks(marks, renewed.close_marks) end
      for i = k, k + n - 1 do
        local l = renewed
        if not restores then
          l = leases[i]
          local held = math.max(l.held + math.max(l.ttl - l.left, 0), renewed.held)
          l.renewals, l.held = string.format('%d', math.max(l.renewals, renewed.renewals)), string.format('%.0f', held)
        end
        l.stamp, l.token, l.ids, l.tombstones, l.close_marks = number, counts and text or '0', ids, tombstones, marks
        if not was_counting then redis.call('SET', KEYS[i + n], number) end
        write_lease(KEYS[i], l, ttl)
      end
      answer = '0 ' .. number .. (counts and ' 1' or ' 0')
    end
  end
  out[#out + 1] = answer
  k, a = k + 2 * n, a + 7
end
return out
