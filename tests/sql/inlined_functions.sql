-- Functions that run for each row of the history or each write are inlined: a call costs as much as the row.
do $$
declare
  line text;
begin
  for line in explain (verbose, costs off)
    select fencing.bound_text(h.owner, 200), fencing.bound_detail(h.detail), fencing.bound_time(h.at),
           fencing.bound_token(h.fencing_token), fencing.is_resource(h.resource), fencing.live_timeline()
      from fencing.history_default h
  loop
    if line ~ 'fencing\.[a-z_]+\(' then
      raise warning 'not inlined: %', line;
    end if;
  end loop;
end
$$;
select fencing.bound_time(null) is not null as now, fencing.bound_time('1999-12-31 00:00Z') >= '2020-01-01' as old,
       fencing.bound_time(now() + interval '2 days') < now() + interval '1 day' as ahead,
       fencing.bound_time('2020-01-01 00:00Z') = '2020-01-01 00:00Z' as kept;
select fencing.bound_token(-1) as negative, fencing.bound_token(9007199254740992) as most,
       fencing.bound_token(9007199254740993) as above;
