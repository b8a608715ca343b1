#include <gateway/pg/outcome_lookup.hpp>
#include <gateway/pg/sqlstate_map.hpp>

#include <spdlog/spdlog.h>

namespace fencegate::pg {
namespace {

std::vector<std::optional<result<write_outcome>>> find(session_slot& slot, const std::vector<const key_of*>& keys) {
    try {
        return find_kept(slot.get(), keys);
    } catch (const session_lost&) {
        if (slot.was_cut()) throw;
        return find_kept(slot.connect(), keys);
    }
}

void look_up(session_slot& slot, const std::vector<lookup_job*>& work) {
    std::vector<const key_of*> keys;
    for (const auto* one : work)
        keys.push_back(&one->key());
    std::vector<std::optional<result<write_outcome>>> found;
    failure why = make_failure(errc::internal_error, "The gateway could not read PostgreSQL's answer.");
    try {
        found = find(slot, keys);
    } catch (const session_lost& lost) {
        slot.drop();
        why = unavailable_because(lost.cause);
    } catch (const statement_failed& e) {
        log_for_operator(e.error);
        why = to_failure(e.error);
    } catch (const std::exception& e) {
        slot.drop();
        spdlog::error("kept outcomes could not be looked up: {}", e.what());
    }
    for (std::size_t i = 0; i < work.size(); ++i) {
        if (found.empty()) {
            work[i]->answer(why);
            continue;
        }
        found_outcome out;
        out.value = std::move(found[i]);
        work[i]->answer(std::move(out));
    }
}

}  // namespace

void lookup_job::run(session_slot& slot) noexcept {
    look_up(slot, {this});
}

void look_up_together(session_slot& slot, std::vector<std::unique_ptr<job>> work) {
    std::vector<lookup_job*> all;
    for (const auto& one : work)
        all.push_back(static_cast<lookup_job*>(one.get()));
    look_up(slot, all);
}

}  // namespace fencegate::pg
