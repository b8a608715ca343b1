// JSON Web Key Sets.
#include "fuzz.hpp"

#include <gateway/config/token_keys.hpp>

#include <string>
#include <vector>

namespace fencegate::fuzz {

void run_input(std::string_view input) {
    std::vector<std::string> faults;
    const auto set = token_key_set::parse(input, faults);
    require(faults.size() <= token_key_set::keys_max + 1, "the number of faults is bounded");
    if (!set) return require(!faults.empty(), "a refusal says why");
    require(set->keys().size() <= token_key_set::keys_max, "the number of keys is bounded");
    require(!set->keys().empty() || !faults.empty(), "a set without keys is a fault");
    for (const token_key& key : set->keys()) {
        require(key.public_key != nullptr, "a key that is kept can be used");
        require(!key.id.empty() && key.id.size() <= token_key_set::id_bytes_max, "the size of a kid is bounded");
        require(set->find(key.id) == &key, "a kid names one key");
    }
}

}  // namespace fencegate::fuzz
