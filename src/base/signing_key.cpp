#include "base/signing_key.h"

#include "base/descriptor.h"
#include "base/digest.h"
#include "base/hex.h"
#include "base/secret.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <sys/stat.h>
#include <unistd.h>

namespace linkcpp {

namespace {

struct Free {
    void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
    void operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }
    void operator()(BIO* bio) const { BIO_free(bio); }
};
template <typename T>
using Owned = std::unique_ptr<T, Free>;

Status io_error(const std::string& path) { return {Code::io, path + ": " + std::strerror(errno)}; }

/// Under a name of its own first, then linked to its final one, which fails where another process was quicker.
Status write_new(const std::string& path, ByteSpan pem) {
    const std::string part = path + "." + to_hex(random_bytes(4)) + ".part";
    {
        const Descriptor file(part, O_WRONLY | O_CREAT | O_EXCL);
        if (file.get() < 0) return io_error(part);
        if (!write_all(file.get(), pem) || fchmod(file.get(), 0600) != 0 || fsync(file.get()) != 0) {
            const Status error = io_error(part);
            unlink(part.c_str());
            return error;
        }
    }
    const bool linked = link(part.c_str(), path.c_str()) == 0 || errno == EEXIST;
    const Status error = linked ? Status() : io_error(path);
    unlink(part.c_str());
    const size_t slash = path.rfind('/');
    const Descriptor folder(slash == std::string::npos ? "." : path.substr(0, slash + 1), O_RDONLY | O_DIRECTORY);
    if (folder.get() >= 0) fsync(folder.get());
    return error;
}

}  // namespace

std::string PublicKey::hex() const { return to_hex(bytes); }

Result<PublicKey> PublicKey::parse(const std::string& hex) {
    const auto bytes = from_hex_array<32>(hex);
    if (!bytes) return {Code::invalid_argument, "a public key is 64 hexadecimal digits (Ed25519)"};
    return PublicKey{*bytes};
}

std::string PublicKey::fingerprint() const { return sha256(bytes).hex().substr(0, 32); }

bool verify_signature(const PublicKey& key, ByteSpan message, const Signature& signature) {
    const Owned<EVP_PKEY> handle(
        EVP_PKEY_new_raw_public_key(EVP_PKEY_ED25519, nullptr, key.bytes.data(), key.bytes.size()));
    const Owned<EVP_MD_CTX> context(EVP_MD_CTX_new());
    return handle && context && EVP_DigestVerifyInit(context.get(), nullptr, nullptr, nullptr, handle.get()) == 1 &&
           EVP_DigestVerify(context.get(), signature.data(), signature.size(), message.data(), message.size()) == 1;
}

struct SigningKey::Handle {
    Owned<EVP_PKEY> key;
};

SigningKey::SigningKey(std::unique_ptr<Handle> handle) : handle_(std::move(handle)) {
    size_t size = public_key_.bytes.size();
    EVP_PKEY_get_raw_public_key(handle_->key.get(), public_key_.bytes.data(), &size);
}
SigningKey::SigningKey(SigningKey&&) noexcept = default;
SigningKey& SigningKey::operator=(SigningKey&&) noexcept = default;
SigningKey::~SigningKey() = default;

SigningKey SigningKey::generate() {
    return SigningKey(
        std::make_unique<Handle>(Handle{Owned<EVP_PKEY>(EVP_PKEY_Q_keygen(nullptr, nullptr, "ED25519"))}));
}

Result<SigningKey> SigningKey::load(const std::string& path) {
    const Descriptor file(path, O_RDONLY);
    if (file.get() < 0) return io_error(path);
    struct stat stat {};
    if (fstat(file.get(), &stat) != 0) return io_error(path);
    if ((stat.st_mode & 077) != 0) {
        return {Code::invalid_argument, path + " holds a private key and others can read it; run: chmod 600 " + path};
    }
    char pem[4096];
    const ssize_t size = read(file.get(), pem, sizeof pem);
    const Owned<BIO> bio(BIO_new_mem_buf(pem, static_cast<int>(std::max<ssize_t>(size, 0))));
    Owned<EVP_PKEY> key(bio ? PEM_read_bio_PrivateKey(bio.get(), nullptr, nullptr, const_cast<char*>("")) : nullptr);
    OPENSSL_cleanse(pem, sizeof pem);
    if (!key || EVP_PKEY_get_base_id(key.get()) != EVP_PKEY_ED25519) {
        return {Code::corrupt, path + " is not an Ed25519 private key (PEM); move it away to have a new one made"};
    }
    return SigningKey(std::make_unique<Handle>(Handle{std::move(key)}));
}

Result<SigningKey> SigningKey::load_or_create(const std::string& path) {
    if (access(path.c_str(), F_OK) == 0) return load(path);
    const SigningKey fresh = generate();
    const Owned<BIO> bio(BIO_new(BIO_s_secmem()));
    char* pem = nullptr;
    if (!bio || PEM_write_bio_PKCS8PrivateKey(bio.get(), fresh.handle_->key.get(), nullptr, nullptr, 0, nullptr,
                                              nullptr) != 1) {
        return {Code::exhausted, "no memory for a new key"};
    }
    const long size = BIO_get_mem_data(bio.get(), &pem);
    LINKCPP_TRY(write_new(path, {reinterpret_cast<const uint8_t*>(pem), static_cast<size_t>(size)}));
    return load(path);
}

Signature SigningKey::sign(ByteSpan message) const {
    Signature signature{};
    size_t size = signature.size();
    const Owned<EVP_MD_CTX> context(EVP_MD_CTX_new());
    EVP_DigestSignInit(context.get(), nullptr, nullptr, nullptr, handle_->key.get());
    EVP_DigestSign(context.get(), signature.data(), &size, message.data(), message.size());
    return signature;
}

}  // namespace linkcpp
