export {Fencegate, type AnyOf, type LeaseOptions, type OneShotOptions, type TickOptions,
  type WithLeaseOptions} from './client.js';
export type {ClientOptions, Http} from './calls.js';
export {enter, enterShared, type Enterable, type Queryable} from './enter.js';
export {ConnectionError, FencegateError, OutcomeUnknownError, ProblemError, type Problem} from './errors.js';
export * from './generated/problems.js';
export type {components, operations, paths} from './generated/schema.js';
export type {FollowFilters, FollowOptions} from './follow.js';
export type {HistoryFilters, HistoryItem} from './history.js';
export type {Lease, LeaseMode} from './lease.js';
export type {LeaseWriteOptions, Operation, WriteApplied, WriteOptions} from './writes.js';
