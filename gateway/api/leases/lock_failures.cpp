#include <gateway/api/leases/lock_failures.hpp>

#include <boost/json/object.hpp>

namespace fencegate::api {

errc meaning_of(lockcore::errc code) {
    switch (code) {
        case lockcore::errc::invalid_argument:
            return errc::invalid_request;
        case lockcore::errc::resource_locked:
            return errc::resource_locked;
        case lockcore::errc::no_quorum:
            return errc::no_quorum;
        case lockcore::errc::lease_lost:
            return errc::lease_lost;
        case lockcore::errc::renewals_exhausted:
            return errc::renewals_exhausted;
        case lockcore::errc::lease_not_authentic:
            return errc::lease_not_authentic;
        case lockcore::errc::other_cell:
            return errc::misdirected_request;
        case lockcore::errc::too_many_waiters:
            return errc::too_many_waiters;
        case lockcore::errc::idempotency_mismatch:
            return errc::idempotency_mismatch;
        case lockcore::errc::busy:
            return errc::too_many_requests;
        // A caller that hung up does not read the answer; any other was cancelled because the gateway stops.
        case lockcore::errc::cancelled:
        case lockcore::errc::shutting_down:
            return errc::shutting_down;
    }
    return errc::internal_error;
}

failure to_failure(const lockcore::failure& f) {
    failure out = make_failure(meaning_of(f.code), f.detail);
    if (f.code == lockcore::errc::resource_locked) {
        out.facts["remaining_ms"] = f.remaining.count();
        out.facts["queue_position"] = f.queue_position;
        // A value that is no lease may have no known end.
        if (f.answers.empty() || f.remaining.count() > 0) out.retry_after = f.remaining;
    }
    if (f.code == lockcore::errc::other_cell) out.facts["named_cell"] = f.cell;
    if (f.code == lockcore::errc::no_quorum || !f.answers.empty()) out.facts["nodes"] = describe_answers(f.answers);
    return out;
}

boost::json::array describe_answers(const std::vector<lockcore::node_answer>& answers) {
    boost::json::array nodes;
    for (const auto& answer : answers) {
        boost::json::object node{{"name", answer.name}, {"answer", answer.answer}};
        if (!answer.detail.empty()) node["detail"] = answer.detail;
        if (answer.quarantine_left.count() > 0) node["quarantine_left_ms"] = answer.quarantine_left.count();
        nodes.push_back(std::move(node));
    }
    return nodes;
}

}  // namespace fencegate::api
