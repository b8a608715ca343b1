#include <gateway/cli/lock_refusal.hpp>

#include <gateway/cli/lock_options.hpp>
#include <gateway/domain/exit_code.hpp>

namespace fencegate::cli {

int refusal_exit_code(unsigned status) {
    if (status == 410 || status == 423 || status == 429) return exit_not_granted;
    if (status == 401 || status == 403) return exit_not_allowed;
    if (status >= 500) return exit_unavailable;
    return status == 400 ? exit_usage : exit_failed;
}

}  // namespace fencegate::cli
