-- The last steps, once all objects exist. A step that was done before does nothing.

select fencing.apply_privileges();

-- The history records an installation of another version, or of other functions and tables.
do $$
declare
  was constant integer := (select max(v.version) from fencing.schema_version v where v.applied_at < now());
begin
  if was is distinct from fencing.schema_version() or exists (select
      from (select * from fencing.object_digests() except select * from fencing.installed_object) d) then
    perform fencing.record_guard_change('migrate', jsonb_build_object('version', fencing.schema_version(), 'was', was));
  end if;
end
$$;

-- The digests with which guard_faults() compares the functions and tables.
delete from fencing.installed_object;
insert into fencing.installed_object select * from fencing.object_digests();
-- Exposed tables and functions stay as they are: their privileges are on the application's own objects.

-- Checks that are not what this version creates are replaced, which waits for no writer.
do $$
declare
  item record;
begin
  for item in
    select p.*, c.relkind = 'p' as by_row from fencing.protected p join pg_class c on c.oid = p.relation
      join pg_proc f on f.pronamespace = 'fencing'::regnamespace and f.proname = p.check_function
     where f.prosecdef or f.proconfig is distinct from fencing.check_settings()
        or f.prosrc <> fencing.check_body(p.row_expression, c.relkind = 'p', p.mode)
  loop
    perform fencing.create_check_function(item.check_function, item.row_expression, item.by_row, item.mode);
  end loop;
end
$$;

-- The same for the tables whose changes are recorded.
select fencing.renew_all_recorders();

-- The checks of an older version, of a restored dump, or after pg_upgrade.
select fencing.record_new_checks(null);

-- Only a superuser may create event triggers; without them guard_faults() still names what they would have refused.
do $$
declare
  item record;
begin
  if not exists (select from pg_catalog.pg_roles r where r.rolname = current_user and r.rolsuper) then
    return;
  end if;
  for item in select * from fencing.wrong_event_triggers() loop
    if item.installed is not null then
      execute format('drop event trigger %I', item.name);
    end if;
    execute format('create event trigger %I on %s%s execute function %s', item.name, item.event,
                   (select format(' when tag in (%s)', string_agg(quote_literal(t.tag), ', '))
                      from unnest(item.tags) as t (tag) having count(*) > 0), item.function);
    execute format('alter event trigger %I enable always', item.name);
    execute format('comment on event trigger %I is %L', item.name,
                   case when item.name = 'fencing_refuse_drop_of_guard'
                     then 'Refuses to drop the guard or a part of it.'
                        when item.name ~ '_schemas$' then 'Refuses to drop both schemas of the guard in one statement.'
                        else 'Refuses commands that would open a protected table without fencing.unprotect().' end);
  end loop;
end
$$;

do $$
declare
  problem constant text := fencing.set_up_recorder();
begin
  if problem is not null then
    raise notice 'fencing: refusals of direct SQL are not recorded: %', problem;
  end if;
end
$$;
