#include <gateway/pg/connection/sqlstate_map.hpp>
#include <gateway/pg/history/history_executor.hpp>
#include <gateway/pg/history/history_writer.hpp>
#include <gateway/pg/read/durable_read.hpp>
#include <gateway/pg/schema/cluster.hpp>

#include <utility>

namespace fencegate::pg {

namespace asio = boost::asio;
namespace {

/// Whether the content of an event is at fault; events that PostgreSQL refuses for anything else are sent again later.
bool is_fault_of_event(std::string_view sqlstate) {
    return sqlstate.starts_with("22") || sqlstate.starts_with("23") || sqlstate.starts_with("54") ||
           sqlstate == "P0001";
}

}  // namespace

/// Runs `read`, which may run twice, and waits until what it read is durable.
template <class T>
asio::awaitable<result<T>> history_executor::read_durably(std::string principal, read_cost cost, deadline until,
                                                          std::function<T(session&)> read) {
    auto work = [read = std::move(read)](session_slot& slot) -> result<snapshot_of<T>> {
        auto value = retry_once_on_new_session(slot, read);
        return snapshot_of<T>(std::move(value), fetch_snapshot_state(slot));
    };
    return pg::read_durably<T>(pool_, flush_, std::move(principal), cost, until, std::move(work));
}

asio::awaitable<result<history_page>> history_executor::read(std::string principal, read_cost cost, history_query query,
                                                             deadline until) {
    return read_durably<history_page>(std::move(principal), cost, until, [query = std::move(query)](session& session) {
        return read_history(session, query);
    });
}

asio::awaitable<result<history_tail>> history_executor::read_tail(deadline until) {
    return read_durably<history_tail>({}, read_cost::cheap, until, read_history_tail);
}

asio::awaitable<result<std::vector<recorded_lease>>> history_executor::read_recorded_leases(
    std::vector<asked_lease> asked, deadline until) {
    return read_durably<std::vector<recorded_lease>>(
        {}, read_cost::cheap, until,
        [asked = std::move(asked)](session& session) { return pg::read_recorded_leases(session, asked); });
}

asio::awaitable<result<std::vector<history_count>>> history_executor::summarize(std::string principal,
                                                                                history_summary_query query,
                                                                                deadline until) {
    return read_durably<std::vector<history_count>>(
        std::move(principal), read_cost::expensive, until,
        [query = std::move(query)](session& session) { return summarize_history(session, query); });
}

asio::awaitable<result<resource_facts>> history_executor::read_resource(std::string principal,
                                                                        lockcore::resource_name resource,
                                                                        std::size_t last_events, deadline until) {
    return read_durably<resource_facts>(std::move(principal), read_cost::cheap, until,
                                        [resource = std::move(resource), last_events](session& session) {
                                            return pg::read_resource(session, resource.str(), last_events);
                                        });
}

asio::awaitable<result<std::size_t>> history_executor::append(std::shared_ptr<const history_batch> batch,
                                                              deadline until) {
    auto work = [batch = std::move(batch)](session_slot& slot) -> result<std::size_t> {
        try {
            return append_history(slot.get(), *batch);
        } catch (const statement_failed& e) {
            const auto& code = e.error.sqlstate;
            const errc meaning = rule_of(code).meaning;
            const bool is_known = meaning == errc::storage_unavailable || meaning == errc::write_conflict;
            if (is_fault_of_event(code) || (is_known && code != "42501")) throw;
            // The function is missing, not granted or fails. A new session prepares the statement again.
            slot.drop();
            spdlog::error("fencing.append_events failed: {} {}", code, e.error.message);
            return unavailable("The history in PostgreSQL can't be written (see the log); nothing was added.");
        }
    };
    auto& chosen = writes_.least_loaded_worker();
    return await_work<std::size_t>(work_kind::changes, until, std::move(work),
                                   [&chosen](std::unique_ptr<job> made) { chosen.submit(std::move(made)); });
}

asio::awaitable<result<history_upkeep>> history_executor::keep_up(unsigned keep_days, deadline until) {
    auto work = [keep_days](session_slot& slot) -> result<history_upkeep> {
        return retry_once_on_new_session(slot,
                                         [keep_days](session& session) { return keep_history(session, keep_days); });
    };
    return run_in_pool<history_upkeep>(pool_, {}, read_cost::cheap, work_kind::changes, until, std::move(work));
}

asio::awaitable<result<guard_report>> history_executor::watch_guard(deadline until) {
    auto work = [](session_slot& slot) -> result<guard_report> {
        return retry_once_on_new_session(slot, pg::watch_guard);
    };
    return run_in_pool<guard_report>(pool_, {}, read_cost::cheap, work_kind::changes, until, std::move(work));
}

}  // namespace fencegate::pg
