-- The last part of ACQUIRE (acquire.lua and shared_caller.lua are in front of it): grants any leases, shared ones too.
-- KEYS and ARGV  those of acquire.lua
-- Reply those of acquire.lua
local WAIT_MS, HOLDERS_MAX = 1000, 1024

local function is_full(place, index)
  local function is_long()
    if #index.holders < 33 * HOLDERS_MAX then return false end -- the shortest line
    return select(2, string.gsub(index.holders, '\n', '')) >= HOLDERS_MAX
  end
  return is_long() and has_holders(place, index, true) and is_long()
end
-- Returns an index that refuses a request, as refuse() needs it.
local function as_refusal(index, k, n)
  index.nonce, index.keys, index.identity = 'index', '-', ''
  index.stamp = string.format('%.0f', read_counters(k, n, base) or 0)
  index.token = index.stamp
  return index
end
-- Returns what refuses a shared request, and its key; or the lease of this attempt, which is there already.
local function find_conflict(key, own, tail)
  local place = index_of(key)
  local index = read_index(place)
  if not index then return own and read_any(place), place end
  if own then return own, key end
  local l, found = find_own(place, index, tail)
  if l then return l, found end
  local waits = redis.call('PTTL', wait_mark_of(place)) ~= -2
  return (waits or is_full(place, index)) and index or nil, place
end
-- An exclusive request that waits leaves the wait mark beside its wake mark.
local function leave_wait_mark(place)
  redis.call('SET', wait_mark_of(place), '', 'PX', WAIT_MS)
  local index = read_index(place)
  if index_time_left(place, index) < WAIT_MS then write_index(place, index, WAIT_MS) end
end

local function acquire_any(k, n, nonce, ttl, hint, previous, previous_hold, tail, wake_mark)
  local previous_found, other_holds, longest, number, places, had_index = 0, '', nil, nil, {}, {}
  for i = k, k + n - 1 do
    local key = KEYS[i]
    local l, place = leases[i] or read_lease(key), key
    if is_shared(key) then
      l, place = find_conflict(key, l, tail)
    elseif l == FOREIGN then
      local index = read_index(key)
      had_index[i] = index
      if index then l = has_holders(key, index) and index or nil end
    end
    if l and l.holders then l = as_refusal(l, k + n, n) end
    leases[i], places[i] = l, place
    if l and l.nonce == previous and place == key then
      previous_found, other_holds = previous_found + 1, merge_ids(other_holds, remove_id(l.ids, previous_hold))
    elseif l and l.nonce ~= nonce then
      local left = l.holders and index_time_left(place, l) or time_left(place, l)
      if not longest or left < 0 or (longest >= 0 and left > longest) then longest, number = left, highest_number(l) end
    end
  end
  if longest then
    local reply = refuse(k, n, places, longest, number, tail, wake_mark)
    for i = k, k + n - 1 do
      local is_refused = leases[i] and leases[i].holders and not is_shared(KEYS[i])
      if is_refused and wake_mark ~= '' then leave_wait_mark(places[i]) end
    end
    return reply
  elseif other_holds ~= '' then
    return release_previous(k, n, previous, previous_hold, other_holds)
  end
  local reply = grant(k, n, nonce, ttl, hint, tail, previous_found, raise_own)
  for i = k, k + n - 1 do
    if reply == 'E' or reply == '4' then break end
    if had_index[i] then
      redis.call('DEL', wait_mark_of(KEYS[i]))
      -- Those that waited for the end of the index wait for that of the lease. Its own wake mark is in the tail.
      local marks = string.gsub(had_index[i].wake_marks, string.match(tail, '\1%x+$') or '\n', '')
      if marks ~= '' then redis.call('APPEND', KEYS[i], marks) end
    elseif is_shared(KEYS[i]) then
      add_holder(KEYS[i], read_any(KEYS[i]), tonumber(ttl))
    end
  end
  return reply
end

return (for_each_lease(2, 8, acquire_any, replies, next_argument, next_key))
