#include <gateway/pg/executor/job.hpp>
#include <gateway/pg/schema/cluster.hpp>
#include <gateway/pg/write/fence_executor.hpp>

#include <functional>
#include <utility>

namespace fencegate::pg {
namespace {

namespace asio = boost::asio;

template <class T>
asio::awaitable<result<T>> submit_to(worker& chosen, deadline until, typename session_job<T>::work work,
                                     std::string principal) {
    return await_work<T>(
        work_kind::changes, until, std::move(work),
        [&chosen](std::unique_ptr<job> made) { chosen.submit(std::move(made)); }, std::move(principal));
}

/// Runs statements that may be repeated, on the chosen worker. `ticket` is kept until they have ended.
template <class T>
asio::awaitable<result<T>> run_on(worker& chosen, deadline until, std::function<T(session&)> statements,
                                  std::string principal = {}, std::shared_ptr<void> ticket = {}) {
    auto work = [statements = std::move(statements), ticket = std::move(ticket)](session_slot& slot) -> result<T> {
        if constexpr (std::is_void_v<T>) {
            retry_once_on_new_session(slot, statements);
            return {};
        } else {
            return retry_once_on_new_session(slot, statements);
        }
    };
    return submit_to<T>(chosen, until, std::move(work), std::move(principal));
}

}  // namespace

asio::awaitable<result<std::vector<fence_state>>> fence_executor::raise(std::vector<lockcore::resource_name> resources,
                                                                        lockcore::fencing_token new_fence,
                                                                        actor initiator, std::string reason,
                                                                        deadline until) {
    std::string principal = initiator.principal;
    auto [chosen, ticket] = writes_.isolate(resources, principal);
    // Even where it raises nothing, its row locks make its commit wait for the disk, and so for fences raised before.
    return run_on<std::vector<fence_state>>(
        *chosen, until,
        [resources = std::move(resources), new_fence, initiator = std::move(initiator), reason = std::move(reason)](
            session& session) { return pg::raise_fences(session, resources, new_fence, initiator, reason); },
        std::move(principal), std::move(ticket));
}

asio::awaitable<result<fence_state>> fence_executor::repair(lockcore::resource_name resource,
                                                            lockcore::fencing_token new_fence, actor initiator,
                                                            std::string reason, deadline until) {
    std::string principal = initiator.principal;
    auto [chosen, ticket] = writes_.isolate({resource}, principal);
    // Not repeated after a lost connection: it may have been made, and others may have raised the fence since.
    auto work = [resource = std::move(resource), new_fence, initiator = std::move(initiator),
                 reason = std::move(reason), ticket = std::move(ticket)](session_slot& slot) -> result<fence_state> {
        return pg::repair_fence(slot.get(), resource, new_fence, initiator, reason);
    };
    return submit_to<fence_state>(*chosen, until, std::move(work), std::move(principal));
}

asio::awaitable<result<lockcore::drawn_epoch>> node_register::draw_epoch(lockcore::epoch_request request,
                                                                         deadline until) {
    return run_on<lockcore::drawn_epoch>(
        writes_.least_loaded_worker(), until,
        [request = std::move(request)](session& session) { return pg::draw_epoch(session, request); });
}

asio::awaitable<result<lockcore::node_record>> node_register::find_node(std::string node_name, deadline until) {
    return run_on<lockcore::node_record>(
        writes_.least_loaded_worker(), until,
        [node_name = std::move(node_name)](session& session) { return find_node_record(session, node_name); });
}

asio::awaitable<result<void>> node_register::note_unsynced(std::string node_name, deadline until) {
    return run_on<void>(writes_.least_loaded_worker(), until, [node_name = std::move(node_name)](session& session) {
        note_node_unsynced(session, node_name);
    });
}

asio::awaitable<result<storage_state>> storage_register::find_state(deadline until) {
    return run_on<storage_state>(writes_.least_loaded_worker(), until,
                                 [](session& session) { return find_storage_state(session); });
}

asio::awaitable<result<std::optional<lockcore::storage_floor>>> storage_register::begin_change(lockcore::epoch seen,
                                                                                               deadline until) {
    return run_on<std::optional<lockcore::storage_floor>>(
        writes_.least_loaded_worker(), until,
        [seen](session& session) { return begin_generation_change(session, seen); });
}

asio::awaitable<result<bool>> storage_register::finish_change(std::string change_id, change_report report,
                                                              deadline until) {
    return run_on<bool>(writes_.least_loaded_worker(), until,
                        [change_id = std::move(change_id), report = std::move(report)](session& session) {
                            return finish_generation_change(session, change_id, report);
                        });
}

asio::awaitable<result<std::vector<std::string>>> storage_register::find_lost_writes(std::vector<std::string> write_ids,
                                                                                     deadline until) {
    return run_on<std::vector<std::string>>(
        writes_.least_loaded_worker(), until,
        [write_ids = std::move(write_ids)](session& session) { return pg::find_lost_writes(session, write_ids); });
}

}  // namespace fencegate::pg
