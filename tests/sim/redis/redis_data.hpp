#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace sim {

using std::chrono::milliseconds;

/// The value of a key: a string or a hash.
struct redis_value {
    static constexpr milliseconds never = milliseconds::max();

    bool is_hash = false;
    std::string text;
    std::vector<std::pair<std::string, std::string>> fields;
    milliseconds expires_at = never;  ///< By the clock of the server.

    std::string* find_field(std::string_view name) {
        for (auto& [field, value] : fields) {
            if (field == name) return &value;
        }
        return nullptr;
    }
};

/// The data of a Redis server. A copy is a snapshot, which a restart may load.
class redis_data {
  public:
    using map = std::map<std::string, redis_value, std::less<>>;

    /// Returns the value; null if there is none or it has expired, which removes it.
    redis_value* find(std::string_view key, milliseconds now) {
        const auto found = keys_.find(key);
        if (found == keys_.end()) return nullptr;
        if (now <= found->second.expires_at) return &found->second;
        keys_.erase(found);
        return nullptr;
    }
    redis_value& create(std::string_view key) { return keys_.emplace(key, redis_value()).first->second; }
    void erase(std::string_view key) {
        const auto found = keys_.find(key);
        if (found != keys_.end()) keys_.erase(found);
    }
    void clear() { keys_.clear(); }
    const map& keys() const { return keys_; }
    void erase_if(const std::function<bool(const std::string&)>& matches) {
        std::erase_if(keys_, [&](const auto& entry) { return matches(entry.first); });
    }
    void erase_expired(milliseconds now) {
        std::erase_if(keys_, [now](const auto& entry) { return now > entry.second.expires_at; });
    }

  private:
    map keys_;
};

}  // namespace sim
