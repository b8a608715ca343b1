// Collects the calls of PostgREST's client that the gateway has to answer, and those that it has to refuse,
// and runs them one after another.
import assert from 'node:assert/strict';
import {PostgrestClient} from '@supabase/postgrest-js';

const {FENCEGATE_URL, FENCING_LEASE} = process.env;
const cases = [];

/** A client without a lease, and one that sends the lease with every call. */
export const reader = new PostgrestClient(`${FENCEGATE_URL}/rest/v1`, {retry: false});
export const writer =
  new PostgrestClient(`${FENCEGATE_URL}/rest/v1`, {retry: false, headers: {'Fencing-Lease': FENCING_LEASE}});

/** Adds a call that has to succeed. `expected`: the data, or a function that checks the whole answer. */
export function works(name, call, expected) {
    cases.push({name, refused: false, run: async () => {
        const answer = await call();
        assert.equal(answer.error, null);
        if (typeof expected === 'function') return expected(answer);
        assert.deepEqual(answer.data, expected);
    }});
}

/**
 * Adds a call that has to be refused with this status and code, by a message that matches `named`.
 * `check`: shows afterwards that nothing was changed.
 */
export function refused(name, call, status, code, named, check = async () => {}) {
    cases.push({name, refused: true, run: async () => {
        const answer = await call();
        assert.ok(answer.error, `it succeeded with ${answer.status} ${JSON.stringify(answer.data)}`);
        const {message, details, hint} = answer.error;
        assert.deepEqual({status: answer.status, code: answer.error.code}, {status, code}, message);
        assert.match(message, named);
        assert.ok(details === null || typeof details === 'string', 'details is a text or null');
        assert.ok(hint === null || typeof hint === 'string', 'hint is a text or null');
        await check();
    }});
}

/** Runs all calls and prints a line of JSON for each: name, refused, and the failure if it did not go as it has to. */
export async function runAll() {
    for (const {name, refused: isRefused, run} of cases) {
        const line = {name, refused: isRefused};
        try {
            await run();
        } catch (failure) {
            line.failure = failure.message;
        }
        console.log(JSON.stringify(line));
    }
}
