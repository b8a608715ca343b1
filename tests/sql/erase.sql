-- A person's names are replaced in the history, in changes and in other tables, only by the owner and with an event.
insert into fencing.history (event, resource, owner, principal, detail) values
  ('lease_granted', 'a/1', 'jane', 'service', null), ('lease_granted', 'a/1', 'janet', 'jane', '{"waited_ms": 1}'),
  ('lease_revoked', 'a/2', null, 'operator', '{"holder": {"owner": "jane", "tags": ["jane", "jane d.", 1, null]}}'),
  ('lease_granted', 'jane', 'other', 'other', '{"jane": "a \"jane\""}'),
  ('write_rejected', 'a/4', 'other', 'other', '{"error": "jane", "relation": "jane", "credential": "jane",
    "operations": ["jane"], "wanted": [{"table": "jane", "arguments": [{"part": "set", "column": "jane",
    "value": "jane"}]}]}'),
  ('configuration_reloaded', null, null, null, '{"changed": ["jane"], "rules": [{"name": "jane",
    "was": {"principal": "jane", "scopes": ["jane"]}}]}');
insert into fencing.row_change (relation, operation, row_key, old, new, principal, direct, application)
select 'public.t', 'update', '{"id": "1"}', '{"name": "jane"}',
  jsonb_build_object('name', fencing.masked_value('jane')),
  'service', true, 'jane';
select * from fencing.find_names('{jane}', 0, 100, 0, 100);
select * from fencing.find_names('{jane}', 2, 100, 1, 100);
-- faulty arguments, and no name that is there
select fencing.erase_names('{}', 'erased-00000001', 'order 7', 0, 100, 0, 100);
select fencing.erase_names(null, 'erased-00000001', 'order 7', 0, 100, 0, 100);
select fencing.erase_names('{jane,null}', 'erased-00000001', 'order 7', 0, 100, 0, 100);
select fencing.erase_names(array['jane', ''], 'erased-00000001', 'order 7', 0, 100, 0, 100);
select fencing.erase_names('{jane}', 'joe', 'order 7', 0, 100, 0, 100);
select fencing.erase_names('{jane}', 'erased-00000001', ' ', 0, 100, 0, 100);
select fencing.erase_names('{jane}', 'erased-00000001', 'order of jane', 0, 100, 0, 100);
select fencing.erase_names('{nobody}', 'erased-00000001', 'order 7', 0, 100, 0, 100);
-- a legal hold
insert into fencing.settings values ('legal_hold', '');
insert into fencing.settings values ('legal_hold', 'case 17');
select fencing.erase_names('{jane}', 'erased-00000001', 'order 7', 0, 100, 0, 100);
select fencing.erase_other_names('{jane}', 'erased-00000001');
select fencing.make_history_partition('2026-08-03');
select dropped from fencing.rotate_history('7 days');
delete from fencing.settings where key = 'legal_hold';
select dropped from fencing.rotate_history('7 days');
-- by nobody else, and recorded by nobody else
\connect - test_gateway
select fencing.erase_names('{jane}', 'erased-00000001', 'order 7', 0, 100, 0, 100);
select fencing.erase_other_names('{jane}', 'erased-00000001');
select fencing.replace_digest(2, '{}', 'signature', 'salt', 'erasable', 1);
select fencing.record_events('[{"event": "person_erased"}]');
select fencing.append_events(gen_random_uuid(), 1, '{null}', '{person_erased}', '{null}', '{null}', '{null}', '{null}',
  '{null}', '{null}', '{null}', '{null}');
select fencing.append_digest(1, '{}', 'signature', 'salt', 'erasable');
\connect - postgres
-- digests are replaced only with an event of the same transaction
select fencing.replace_digest(2, '{}', 'signature', 'salt', 'erasable', 1);
select fencing.replace_digest(3, '{}', 'signature', 'salt', 'erasable', 1);
begin;
select fencing.erase_names('{jane}', 'erased-00000001', 'order 7', 0, 100, 0, 100);
select fencing.replace_digest(2, '{}', 'signature', 'salt', 'erasable', 1);
savepoint s;
select fencing.replace_digest(3, '{}', 'signature', 'salt', 'erasable', 2);
rollback to s;
-- what is no name stays as it is
update fencing.history set resource = 'a/3' where resource = 'a/2';
rollback to s;
update fencing.row_change set relation = 'public.u';
rollback to s;
update fencing.history_digest set salt = 'another';
rollback to s;
delete from fencing.history;
rollback to s;
commit;
-- nor is anything changed in a later transaction
update fencing.history set owner = 'me';
select resource, owner, principal, detail from fencing.history where event <> 'guard_changed' order by id;
select row_key, old, new, principal, application from fencing.row_change;
select number, salt, erasable_salt, replaces from fencing.history_digest order by number;
select fencing.erase_names('{jane}', 'erased-00000002', 'order 7', 0, 100, 0, 100);
-- kept outcomes and the caller of a write
insert into fencing.kept_outcome values
  ('jane', 'k1', '\x00', '{"write_id": "w", "results": [{"affected": 1, "json": "[{\"n\": \"ja\\\"ne\"}]"}]}', now()),
  ('jane', 'k2', '\x00',
   '{"refusal": "r", "detail": "ja\"ne is there", "errors": [1], "facts": {"write_id": "w"}}', now()),
  ('jane', 'k3', '\x00', '{"results": [{"affected": 1, "json": "[]"}]}', now());
update fencing.protected set protected_by = 'ja"ne';
insert into fencing.guard (resource, last_fencing_token, entered_by) values ('a/1', 1, 'ja"ne'), ('a/2', 1, 'joe');
select fencing.erase_other_names(array['ja"ne'], 'erased-00000001');
select fencing.erase_other_names(array['ja"ne'], 'erased-00000001');
select principal, key, outcome from fencing.kept_outcome order by key;
select resource, entered_by from fencing.guard where resource < 'b' order by resource;
select relation, protected_by from fencing.protected order by relation::text;
-- the caller's own login, the guard's facts, and a week under a hold
select fencing.erase_names('{postgres}', 'erased-00000001', 'order 7', 0, 100, 0, 100);
begin;
create or replace function fencing.session_origin() returns jsonb
language sql stable as $$ select '{"address": "10.1.2.3"}'::jsonb $$;
select fencing.erase_names('{jane,10.1.2.3}', 'erased-00000001', 'order 7', 0, 100, 0, 100);
rollback;
select fencing.replace_in_detail('guard_changed',
  '{"action": "unprotect", "application": "unprotect", "value": "unprotect"}', '{unprotect}', 'erased-00000001');
insert into fencing.known_fault (fault, principal) values ('f', 'jane');
select fencing.erase_other_names('{jane}', 'erased-00000003');
select principal from fencing.known_fault;
insert into fencing.settings values ('legal_hold', 'case 18');
select fencing.drop_week('20260803');
-- a hold that arrives after keep_history() has looked for old weeks
begin;
create or replace function fencing.old_history_partitions(keep interval) returns setof text
language sql stable as $$ select '20260803' $$;
insert into fencing.event_stream values (gen_random_uuid(), 1, 0, now() - interval '8 days');
select * from fencing.keep_history(30);
select count(*) from fencing.event_stream;
delete from fencing.settings;
select * from fencing.keep_history(30);
rollback;
-- holds are events, as is how long gateways have to keep the history
update fencing.settings set value = 'case 19' where key = 'legal_hold';
insert into fencing.settings values ('history_keep_days_min', '365');
update fencing.settings set value = '30' where key = 'history_keep_days_min';
update fencing.settings set key = 'require_proof', value = 'off' where key = 'history_keep_days_min';
truncate fencing.settings;
select principal, detail - 'application' as detail from fencing.history
  where detail->>'action' ~ '^(legal_hold|history_keep)' order by id;
