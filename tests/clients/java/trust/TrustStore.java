import java.io.FileInputStream;
import java.io.FileOutputStream;
import java.security.KeyStore;
import java.security.cert.CertificateFactory;

/** Java's own list of authorities may lack those an administrator added: makes a store of the system's bundle. Arguments: bundle, store, password. */
public final class TrustStore {
    public static void main(String[] args) throws Exception {
        KeyStore store = KeyStore.getInstance("PKCS12");
        store.load(null, null);
        int count = 0;
        try (FileInputStream bundle = new FileInputStream(args[0])) {
            for (var certificate : CertificateFactory.getInstance("X.509").generateCertificates(bundle)) {
                store.setCertificateEntry("authority-" + count++, certificate);
            }
        }
        try (FileOutputStream out = new FileOutputStream(args[1])) {
            store.store(out, args[2].toCharArray());
        }
    }
}
