#include <gateway/api/writes/idempotency.hpp>

#include <gateway/config/secrets.hpp>

#include <algorithm>
#include <string_view>
#include <utility>

namespace fencegate::api {
namespace {

constexpr std::size_t key_bytes_max = 64;

}  // namespace

std::string read_idempotency_key(const http::request& r, http::fault_list& faults) {
    if (!r.has_header("idempotency-key")) return {};
    const std::string_view key = r.header("idempotency-key");
    const bool visible = std::ranges::all_of(key, [](char c) { return c > 0x20 && c < 0x7f; });
    if (key.empty() || key.size() > key_bytes_max || !visible)
        faults.add("Idempotency-Key", "has to be 1 to 64 visible ASCII characters");
    return std::string(key);
}

idempotency_key make_idempotency_key(std::string key, const http::request& r, std::string_view body,
                                     std::string_view accepted_form, std::chrono::milliseconds keep_for) {
    // What a role may see is not shown to another one of the same principal.
    const auto& database = r.rights->database();
    std::string text = database ? database->role + '\n' : std::string();
    text += http::to_string(r.verb);
    const auto preferences = r.header_list("prefer");
    for (const std::string_view part :
         {std::string_view(" "), std::string_view(r.path), std::string_view("?"), std::string_view(r.query),
          std::string_view("\n"), std::string_view(preferences), std::string_view("\n"), body}) {
        text += part;
    }
    if (!accepted_form.empty()) text.append("\n").append(accepted_form);
    return {std::move(key), sha256_hex(text), keep_for};
}

std::shared_ptr<void> running_keys::enter(const std::string& principal, const std::string& key) {
    std::string entry = principal + '\n' + key;
    const std::lock_guard lock(mutex_);
    if (!keys_.insert(entry).second) return nullptr;
    return {this, [entry = std::move(entry)](running_keys* self) {
                const std::lock_guard leaving(self->mutex_);
                self->keys_.erase(entry);
            }};
}

}  // namespace fencegate::api
