#include <gateway/pg/commit_resolver.hpp>

#include <spdlog/spdlog.h>

#include <algorithm>
#include <thread>

namespace fencegate::pg {

landed find_out(session_slot& slot, const std::string& write_id, const std::string& resource, deadline until) {
    const auto last_moment = std::max(until, std::chrono::steady_clock::now() + find_out_min);
    slot.expect_answer_by(last_moment);
    auto pause = reconnect_backoff_min;
    for (;;) {
        try {
            // Never the session on which the commit was sent.
            auto& fresh = slot.connect();
            const auto rows = fresh.exec("select fencing.write_landed($1::uuid, $2::text)", {write_id, resource});
            const bool yes = rows[0][0].as<bool>();
            spdlog::warn("the connection broke during the commit of write {}; it {}", write_id,
                         yes ? "landed" : "did not land");
            return yes ? landed::yes : landed::no;
        } catch (const session_lost&) {
        } catch (const statement_failed&) {
            // Most likely lock_timeout: the broken transaction has not ended yet.
        }
        if (std::chrono::steady_clock::now() + pause >= last_moment) break;
        std::this_thread::sleep_for(pause);
        pause = std::min(pause * 2, reconnect_backoff_max);
    }
    spdlog::error("the connection broke during the commit of write {}; whether it landed is unknown", write_id);
    return landed::unknown;
}

}  // namespace fencegate::pg
