#pragma once

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fencegate {

/// Returns the edit distance (Levenshtein) of two words.
inline std::size_t edit_distance(std::string_view a, std::string_view b) {
    std::vector<std::size_t> row(b.size() + 1);
    std::iota(row.begin(), row.end(), std::size_t{0});
    for (std::size_t i = 0; i < a.size(); ++i) {
        std::size_t diagonal = row[0];
        row[0] = i + 1;
        for (std::size_t j = 0; j < b.size(); ++j) {
            const std::size_t exchange = diagonal + (a[i] == b[j] ? 0 : 1);
            diagonal = row[j + 1];
            row[j + 1] = std::min({row[j] + 1, row[j + 1] + 1, exchange});
        }
    }
    return row[b.size()];
}

/// Returns the known name that was probably meant; empty if none is similar. A missing or wrong unit (`max_ttl` or
/// `max_ttl_s` for `max_ttl_ms`) counts as similar.
inline std::optional<std::string> nearest_name(std::string_view written, const std::vector<std::string>& names) {
    const std::string* best = nullptr;
    // Two letters of three are no likeness.
    std::size_t best_distance = (written.size() < 4 ? 1 : std::max<std::size_t>(2, written.size() / 3)) + 1;
    for (const auto& name : names) {
        const std::size_t distance =
            name.starts_with(written) && written.size() >= 3 ? 1 : edit_distance(written, name);
        if (distance < best_distance) {
            best = &name;
            best_distance = distance;
        }
    }
    if (best == nullptr) return std::nullopt;
    return *best;
}

}  // namespace fencegate
