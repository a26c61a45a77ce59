# Shared by the JDBC clients: jars by Maven from the pinned pom.xml, classes by javac, both under build/.
# MORE_SOURCES is a folder of classes that are shipped and tested with the client.
MAIN_CLASS=${MAIN_CLASS:?}
DRIVER_VERSION=${DRIVER_VERSION:-$(sed -n 's:.*<driver.version>\(.*\)</driver.version>.*:\1:p' "$HERE/pom.xml")}
BUILD=$HERE/build/$DRIVER_VERSION

probe() {
    need javac openjdk-17-jdk-headless
    need java openjdk-17-jre-headless
    need mvn maven
}

# Maven trusts whom the system trusts.
trust() {
    local bundle=${SSL_CERT_FILE:-/etc/ssl/certs/ca-certificates.crt}
    [ -r "$bundle" ] || return 0
    mkdir -p "$BUILD"
    java "$HERE/../java/trust/TrustStore.java" "$bundle" "$BUILD/trust.p12" changeit
    export MAVEN_OPTS="${MAVEN_OPTS:-} -Djavax.net.ssl.trustStore=$BUILD/trust.p12 -Djavax.net.ssl.trustStorePassword=changeit"
}

build() {
    local sources=("$HERE"/../java/*.java "$HERE"/src/*.java)
    if [ -n "${MORE_SOURCES:-}" ]; then sources+=("$MORE_SOURCES"/*.java); fi
    if ! fresh "$BUILD/lib.done" "$HERE/pom.xml"; then
        trust
        mvn -q -B -Dstyle.color=never -f "$HERE/pom.xml" "-Ddriver.version=$DRIVER_VERSION" dependency:copy-dependencies "-DoutputDirectory=$BUILD/lib"
        touch "$BUILD/lib.done"
    fi
    if ! fresh "$BUILD/classes.done" "$BUILD/lib.done" "${sources[@]}"; then
        rm -rf "$BUILD/classes"
        javac -Xlint:all,-serial,-path -Werror -encoding UTF-8 --release 17 -cp "$BUILD/lib/*" -d "$BUILD/classes" "${sources[@]}"
        touch "$BUILD/classes.done"
    fi
}

checks() {
    limited java -Xshare:auto -XX:TieredStopAtLevel=1 -Dfile.encoding=UTF-8 -cp "$BUILD/classes:$BUILD/lib/*" "$MAIN_CLASS"
}
