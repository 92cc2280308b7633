#include "base/secret.h"

#include <cstdlib>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

namespace linkcpp {

Bytes random_bytes(size_t size) {
    Bytes bytes(size);
    // Without random numbers there is no secret: going on would be worse than ending.
    if (RAND_bytes(bytes.data(), static_cast<int>(size)) != 1) std::abort();
    return bytes;
}

Digest hmac_sha256(ByteSpan key, ByteSpan message) {
    Digest digest;
    unsigned size = 0;
    HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()), message.data(), message.size(), digest.bytes.data(),
         &size);
    return digest;
}

bool equal_secrets(ByteSpan a, ByteSpan b) {
    return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace linkcpp
