#include <gateway/config/signing_keys.hpp>

#include <gateway/config/secrets.hpp>

#include <lockcore/hmac_sha256.hpp>

#include <algorithm>

namespace fencegate {
namespace {

constexpr const char* signing_key_variable = "FENCEGATE_SIGNING_KEY";
constexpr const char* signing_key_path = "lease.signing_key_file";
constexpr const char* verification_keys_path = "lease.verification_key_files";
constexpr std::size_t verification_keys_max = 4;

void check_length(const std::string& key, const std::string& path, config_reader::fault_list& faults) {
    if (key.size() < lockcore::hmac_sha256::key_bytes_min)
        faults.add(path, "the key has " + std::to_string(key.size()) + " bytes; it needs at least 32");
}

}  // namespace

config_reader::read_value verification_key_files(std::vector<std::string>& keys, const std::filesystem::path& folder) {
    const auto read_key = [&keys, folder](std::size_t i, const YAML::Node& node, const std::string& path,
                                          config_reader::fault_list& faults) {
        std::string name, fault;
        if (i == verification_keys_max) faults.add(verification_keys_path, "has more than 4 entries");
        if (i >= verification_keys_max) return;
        std::string& read = keys.emplace_back();  // empty after a fault, so that each key has the position of its file
        if (!config_reader::read_scalar(node, path, faults, name)) return;
        if (auto key = read_secret(folder / name, fault)) {
            read = std::move(*key);
            faults.check_permissions(path, folder / name);
        } else {
            faults.add(path, fault);
        }
    };
    return {keys, config_reader::list(read_key)};
}

void check_signing_keys(std::string& signing_key, const std::vector<std::string>& verification_keys,
                        config_reader::fault_list& faults) {
    const std::string from_environment = take_secret_variable(signing_key_variable);
    if (!faults.covers(signing_key_path)) {
        const bool is_variable = signing_key.empty();
        if (is_variable) signing_key = from_environment;
        if (signing_key.empty())
            faults.add(signing_key_path,
                       std::string("is missing, and the environment variable ") + signing_key_variable + " is not set");
        else
            check_length(signing_key, is_variable ? signing_key_variable : signing_key_path, faults);
    }
    const auto first = verification_keys.begin();
    for (auto key = first; key != verification_keys.end(); ++key) {
        const std::string path = verification_keys_path + ("[" + std::to_string(key - first) + "]");
        if (faults.covers(path)) continue;
        check_length(*key, path, faults);
        if (*key == signing_key)
            faults.add(path, "is the key that signs; name the others that count");
        else if (std::find(first, key, *key) != key)
            faults.add(path, "is named twice");
    }
}

}  // namespace fencegate
