package rag_notes;

import java.util.List;
import java.util.Map;
import java.util.regex.Pattern;
import org.apache.lucene.analysis.TokenStream;
import org.apache.lucene.analysis.cjk.CJKAnalyzer;
import org.apache.lucene.analysis.email.UAX29URLEmailTokenizer;
import org.apache.lucene.analysis.en.EnglishAnalyzer;
import org.apache.lucene.analysis.miscellaneous.RemoveDuplicatesTokenFilter;
import org.apache.lucene.analysis.pattern.PatternCaptureGroupTokenFilter;
import org.elasticsearch.index.analysis.AbstractTokenFilterFactory;
import org.elasticsearch.index.analysis.PreBuiltAnalyzerProviderFactory;
import org.elasticsearch.index.analysis.PreConfiguredTokenFilter;
import org.elasticsearch.index.analysis.PreConfiguredTokenizer;
import org.elasticsearch.index.analysis.TokenFilterFactory;
import org.elasticsearch.indices.analysis.AnalysisModule.AnalysisProvider;
import org.elasticsearch.indices.analysis.PreBuiltCacheFactory.CachingStrategy;
import org.elasticsearch.plugins.AnalysisPlugin;
import org.elasticsearch.plugins.Plugin;

/**
 * What the minimal build lacks and every released server has, from the Lucene jar that the build has: the analyzers
 * english and cjk, and what the index of API keys needs.
 */
public final class Analysis extends Plugin implements AnalysisPlugin {
    @Override
    public List<PreBuiltAnalyzerProviderFactory> getPreBuiltAnalyzerProviderFactories() {
        return List.of(
            new PreBuiltAnalyzerProviderFactory("english", CachingStrategy.ONE, EnglishAnalyzer::new),
            new PreBuiltAnalyzerProviderFactory("cjk", CachingStrategy.ONE, CJKAnalyzer::new)
        );
    }

    @Override
    public Map<String, AnalysisProvider<TokenFilterFactory>> getTokenFilters() {
        return Map.of("pattern_capture", (index, environment, name, settings) -> {
            Pattern[] patterns = settings.getAsList("patterns").stream().map(Pattern::compile).toArray(Pattern[]::new);
            boolean whole = settings.getAsBoolean("preserve_original", true);
            return new AbstractTokenFilterFactory(name) {
                @Override
                public TokenStream create(TokenStream tokens) {
                    return new PatternCaptureGroupTokenFilter(tokens, whole, patterns);
                }
            };
        });
    }

    @Override
    public List<PreConfiguredTokenFilter> getPreConfiguredTokenFilters() {
        // The server's own filter drops all repetitions, this one those at one place: the keys' index works with either.
        return List.of(PreConfiguredTokenFilter.singleton("unique", false, RemoveDuplicatesTokenFilter::new));
    }

    @Override
    public List<PreConfiguredTokenizer> getPreConfiguredTokenizers() {
        return List.of(PreConfiguredTokenizer.singleton("uax_url_email", UAX29URLEmailTokenizer::new));
    }
}
