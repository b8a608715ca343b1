#include <gateway/pg/write/kept_outcome.hpp>
#include <gateway/pg/write/outcome_sweep.hpp>

#include <spdlog/spdlog.h>

namespace fencegate::pg {

class outcome_sweep::batch final : public job {
  public:
    batch(deadline until, outcome_sweep& owner) : job(until), owner_(owner) {}

    void run(session_slot& slot) noexcept override {
        bool more = false;
        try {
            more = forget_outcomes(slot.get(), sweep_max) == sweep_max;
        } catch (const session_lost&) {
            slot.drop();
        } catch (const std::exception& e) {
            spdlog::warn("expired kept outcomes could not be deleted: {}", e.what());
        }
        end(more);
    }
    void refuse(failure /*why*/) noexcept override { end(false); }

  private:
    void end(bool more) {
        owner_.more_ = more;
        owner_.under_way_ = false;
    }

    outcome_sweep& owner_;
};

std::unique_ptr<job> outcome_sweep::next_batch(std::chrono::steady_clock::time_point now) {
    if (under_way_ || (!more_ && now - last_ < sweep_interval)) return nullptr;
    last_ = now;
    under_way_ = true;
    return std::make_unique<batch>(now + sweep_interval, *this);
}

}  // namespace fencegate::pg
