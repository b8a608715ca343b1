#pragma once

namespace fencegate {

/// What a read may cost the database, as far as its kind tells.
enum class read_cost {
    cheap,
    expensive,  ///< May read much more than it gives: a search, a summary, an export.
    continued   ///< Expensive, and the next part of one that was let in: it is not refused for others that wait.
};

}  // namespace fencegate
