// Makes every type of call that PostgREST's client has. Usage: FENCEGATE_URL=… FENCING_LEASE=… node calls.mjs
import {runAll} from './cases.mjs';
import './reads.mjs';
import './writes.mjs';
import './functions.mjs';
import './refusals.mjs';

await runAll();
