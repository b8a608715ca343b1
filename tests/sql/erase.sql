-- A person's names are replaced in the history, in changes and in other tables, only by the owner and with an event.
insert into fencing.history (event, resource, owner, principal, detail) values
  ('lease_granted', 'a/1', 'jane', 'service', null), ('lease_granted', 'a/1', 'janet', 'jane', '{"waited_ms": 1}'),
  ('lease_revoked', 'a/2', null, 'operator', '{"holder": {"owner": "jane", "tags": ["jane", "jane d.", 1, null]}}'),
  ('lease_granted', 'jane', 'other', 'other', '{"jane": "a \"jane\""}');
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
select fencing.replace_in_detail('guard_changed', '{"action": "unprotect", "application": "unprotect"}', '{unprotect}',
  'erased-00000001');
insert into fencing.known_fault (fault, principal) values ('f', 'jane');
select fencing.erase_other_names('{jane}', 'erased-00000003');
select principal from fencing.known_fault;
insert into fencing.settings values ('legal_hold', 'case 18');
select fencing.drop_week('20260803');
